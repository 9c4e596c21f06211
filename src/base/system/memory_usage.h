// Memory as the operating system reports it, in bytes. Linux only.
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

/// Memory that a rank has resident in addition to its plan: the program, its libraries and what they take for
/// themselves, MPI and matrix products included. More ranks, threads and checkpoint.async take more. Measured with 1
/// to 8 ranks on one Debian 12 machine (Open MPI 4.1.4, oneDNN 2.6): 43 to 80 MiB, and from 36 MiB on where native
/// products of bf16 leave nothing to oneDNN, which takes 8 to 12 MiB for itself.
inline constexpr double kLeastProgramBytes = 30 << 20, kMostProgramBytes = 80 << 20;
/// "30 to 80 MiB".
std::string program_bytes();

/// The error of a rank that gets none, in any program.
inline constexpr const char* kOutOfMemory =
    "out of memory; start fewer ranks on a node (megatron_train --dry-run shows what a rank needs)";

/// Where the kernel tells: other folders are for tests.
struct MemoryFiles {
  std::string proc = "/proc", control_groups = "/sys/fs/cgroup";
};

/// Memory that new allocations on this node can still get without swapping, all processes together: the kernel's
/// estimate of available memory, or what is left of this process's control group (a batch job's memory limit) if that
/// is less. Memory that the kernel would give up for them, file pages above all, counts as free in both. Nothing where
/// the system does not say.
std::optional<std::size_t> free_memory_bytes(const MemoryFiles& files = {});

/// Swap space that is not used; 0 where there is none.
std::size_t free_swap_bytes(const MemoryFiles& files = {});

}  // namespace megatron
