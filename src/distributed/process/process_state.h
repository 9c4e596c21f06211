// Facts that the system has about a process of this host: whether it runs, and what its first thread, which computes,
// has done so far. Read from /proc.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// "running", "sleeping", "waiting for a disk", "stopped", "dead", "gone", ...
std::string state_of(std::int32_t process);

struct ThreadWork {
  double cpu_seconds = 0;
  std::uint64_t bytes = 0;  ///< read and written
};

/// Zeros where the system does not tell.
ThreadWork work_of(std::int32_t process);

}  // namespace megatron
