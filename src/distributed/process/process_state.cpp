#include "distributed/process/process_state.h"

#include <fmt/format.h>

#include <fstream>

namespace megatron {

std::string state_of(std::int32_t process) {
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), text);
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos || close + 2 >= text.size()) return "gone";
  switch (text[close + 2]) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "waiting for a disk";
    case 'T':
    case 't': return "stopped";
    case 'Z': return "dead";
    default: return "alive";
  }
}

ThreadWork work_of(std::int32_t process) {
  ThreadWork work;
  double nanoseconds = 0;
  std::ifstream(fmt::format("/proc/{0}/task/{0}/schedstat", process)) >> nanoseconds;
  work.cpu_seconds = 1e-9 * nanoseconds;
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/io", process));
  std::string name;
  for (std::uint64_t number = 0; file >> name >> number;) {
    if (name == "rchar:" || name == "wchar:") work.bytes += number;
  }
  return work;
}

}  // namespace megatron
