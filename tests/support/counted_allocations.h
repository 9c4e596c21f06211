// Counts the program's requests to operator new: linked in, counted_allocations.cpp replaces it for the whole program.
// MPI's and HDF5's C libraries ask malloc, and are not counted; neither is what oneDNN asks for in its calls, as its
// releases from 3 on do.
#pragma once

namespace megatron::test {

long allocations();          ///< by all threads so far
long allocations_of_mine();  ///< by the calling thread so far

}  // namespace megatron::test
