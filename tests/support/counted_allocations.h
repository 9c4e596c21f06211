// What the program asks operator new for, counted: linked in, counted_allocations.cpp replaces it for the whole
// program. MPI's and HDF5's C libraries ask malloc, and are not counted; neither is what oneDNN asks for in its calls,
// as its releases from 3 on do.
#pragma once

namespace megatron::test {

long allocations();          ///< of all threads so far
long allocations_of_mine();  ///< of the calling thread so far

}  // namespace megatron::test
