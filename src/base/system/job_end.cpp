#include "base/system/job_end.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace megatron {

namespace {

constexpr double kInterval = 0.1;  // seconds between two looks

bool exists(pid_t process) {
  return ::kill(process, 0) == 0;
}

void close_all_files() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto last = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 16));
  for (int file = 0; file < last; ++file) ::close(file);
}

// The child of a process with several threads: no memory, no locks.
[[noreturn]] void watch_and_kill(const pid_t* begin, const pid_t* end, double seconds) {
  ::setsid();  // the launcher kills whole groups
  ::prctl(PR_SET_NAME, "kill_later");
  close_all_files();
  for (double waited = 0; waited < seconds; waited += kInterval) {
    if (std::none_of(begin, end, exists)) ::_exit(0);
    const timespec interval{0, static_cast<long>(kInterval * 1e9)};
    ::nanosleep(&interval, nullptr);
  }
  for (const pid_t* process = begin; process != end; ++process) ::kill(*process, SIGKILL);
  ::_exit(0);
}

}  // namespace

void kill_later(const std::vector<pid_t>& processes, double seconds) {
  const pid_t* const begin = processes.data();
  if (::fork() == 0) watch_and_kill(begin, begin + processes.size(), seconds);
}

void leave_exit_code(int exit_code) {
  const char* const path = std::getenv("MEGATRON_ABORTED_FILE");
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  const std::string text = fmt::format("{}\n", exit_code);
  [[maybe_unused]] const ssize_t written = ::write(file, text.data(), text.size());
  ::close(file);
}

bool runs_this_program(pid_t process) {
  std::error_code own, other;
  const auto file = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), other);
  return file == std::filesystem::read_symlink("/proc/self/exe", own) && !own && !other;
}

}  // namespace megatron
