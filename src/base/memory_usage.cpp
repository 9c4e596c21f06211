#include "base/memory_usage.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

namespace {

std::optional<std::size_t> number_in(std::string_view text) {
  const std::size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return std::nullopt;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

/// The value of a "Name:   123 kB" line in bytes.
std::size_t kilobyte_field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return number_in(line.substr(name.size())).value_or(0) * 1024;
  }
  return 0;
}

std::optional<std::size_t> number_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return number_in(line);  // "max" has no number: no limit
}

/// Bytes left under the tightest memory limit of this process's control groups (version 2), if there is any.
std::optional<std::size_t> control_group_room() {
  std::ifstream file("/proc/self/cgroup");
  std::optional<std::size_t> room;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    // The limit may stand on any ancestor: a job's on the job, not on the step inside it.
    for (std::string group = line.substr(3); !group.empty(); group.resize(group.find_last_of('/'))) {
      const std::string folder = "/sys/fs/cgroup" + (group == "/" ? std::string() : group);
      const auto limit = number_file(folder + "/memory.max"), used = number_file(folder + "/memory.current");
      if (!limit || !used) continue;
      const std::size_t left = *limit > *used ? *limit - *used : 0;
      room = std::min(room.value_or(left), left);
    }
  }
  return room;
}

}  // namespace

std::size_t peak_resident_bytes() {
  return kilobyte_field("/proc/self/status", "VmHWM:");
}

std::size_t resident_bytes() {
  return kilobyte_field("/proc/self/status", "VmRSS:");
}

std::size_t free_memory_bytes() {
  const std::size_t available = kilobyte_field("/proc/meminfo", "MemAvailable:");
  return std::min(available, control_group_room().value_or(available));
}

}  // namespace megatron
