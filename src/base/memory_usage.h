// What the operating system says about memory, in bytes. Linux only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace megatron {

/// Most memory this process has had in RAM at once so far; 0 where the system does not say. With ranks as threads it is
/// all ranks' together.
std::size_t peak_resident_bytes();

/// Memory this process has in RAM now; 0 where the system does not say.
std::size_t resident_bytes();

/// Where the kernel tells: other folders are for tests.
struct MemoryFiles {
  std::string proc = "/proc", control_groups = "/sys/fs/cgroup";
};

/// What new allocations on this node can still get without swapping, all processes together: the kernel's estimate of
/// available memory, or what is left of this process's control group (a batch job's memory limit) if that is less.
/// What the kernel would give up for them, file pages above all, counts as free in both. Nothing where the system does
/// not say.
std::optional<std::size_t> free_memory_bytes(const MemoryFiles& files = {});

/// Swap space that is not used; 0 where there is none.
std::size_t free_swap_bytes(const MemoryFiles& files = {});

}  // namespace megatron
