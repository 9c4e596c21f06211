#include "base/system/memory_usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string_view>

namespace megatron {

namespace {

constexpr std::size_t kKilobyte = 1024;  // the unit of fields in /proc

std::optional<std::size_t> number_in(std::string_view text) {
  const std::size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return std::nullopt;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

/// The number on the line of a file that begins with this name.
std::optional<std::size_t> field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return number_in(std::string_view(line).substr(name.size()));
  }
  return std::nullopt;
}

std::optional<std::size_t> number_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return number_in(line);  // "max" has no number: no limit
}

/// How one version of control groups names things.
struct GroupFiles {
  const char *folder, *limit, *used;
  std::array<const char*, 3> reclaimable;  // in memory.stat, of the group and those below it: pages of files, slabs
};
constexpr GroupFiles kVersion1{
    "/memory",
    "/memory.limit_in_bytes",
    "/memory.usage_in_bytes",
    {"total_inactive_file ", "total_active_file ", "total_slab_reclaimable "}};  // the last where it is told
constexpr GroupFiles kVersion2{
    "", "/memory.max", "/memory.current", {"inactive_file ", "active_file ", "slab_reclaimable "}};

/// Memory that is left under one group's own limit, if it has one.
std::optional<std::size_t> room_in(const std::string& group, const GroupFiles& files) {
  const auto limit = number_file(group + files.limit), used = number_file(group + files.used);
  if (!limit || !used) return std::nullopt;
  std::size_t held = *used;
  for (const char* name : files.reclaimable) held -= std::min(held, field(group + "/memory.stat", name).value_or(0));
  return *limit - std::min(*limit, held);
}

/// The least that is left under the limits of this process's control groups, if there are any.
std::optional<std::size_t> control_group_room(const MemoryFiles& system) {
  std::ifstream file(system.proc + "/self/cgroup");
  std::optional<std::size_t> room;
  // "0::/path", or with version 1 also "4:memory:/path".
  for (std::string line; std::getline(file, line);) {
    const bool second = line.starts_with("0::/"), first = line.find(":memory:/") != std::string::npos;
    if (!first && !second) continue;
    const GroupFiles& files = second ? kVersion2 : kVersion1;
    // The limit may stand on any ancestor: a job's on the job, not on the step inside it; a container's on the root.
    std::string group = line.substr(line.find(":/") + 1);
    while (true) {
      if (group == "/") group.clear();
      const auto left = room_in(system.control_groups + files.folder + group, files);
      if (left) room = std::min(room.value_or(*left), *left);
      if (group.empty()) break;
      group.resize(group.find_last_of('/'));
    }
  }
  return room;
}

}  // namespace

std::size_t peak_resident_bytes() {
  return field("/proc/self/status", "VmHWM:").value_or(0) * kKilobyte;
}

std::size_t resident_bytes() {
  return field("/proc/self/status", "VmRSS:").value_or(0) * kKilobyte;
}

std::optional<std::size_t> free_memory_bytes(const MemoryFiles& files) {
  std::optional<std::size_t> available = field(files.proc + "/meminfo", "MemAvailable:");
  if (available) *available *= kKilobyte;
  const std::optional<std::size_t> room = control_group_room(files);
  if (!available || !room) return available ? available : room;
  return std::min(*available, *room);
}

std::size_t free_swap_bytes(const MemoryFiles& files) {
  return field(files.proc + "/meminfo", "SwapFree:").value_or(0) * kKilobyte;
}

std::string program_bytes() {
  return fmt::format("{:.0f} to {:.0f} MiB", kLeastProgramBytes / (1 << 20), kMostProgramBytes / (1 << 20));
}

}  // namespace megatron
