// What the operating system says about memory, in bytes. Linux only; 0 where the system does not say.
#pragma once

#include <cstddef>

namespace megatron {

/// Most memory this process has had in RAM at once so far. With ranks as threads it is all ranks' together.
std::size_t peak_resident_bytes();

/// Memory this process has in RAM now.
std::size_t resident_bytes();

/// What new allocations on this node can still get without swapping, all processes together: the kernel's estimate of
/// available memory, or what is left of this process's control group (a batch job's memory limit) if that is less.
std::size_t free_memory_bytes();

}  // namespace megatron
