#include "base/system/crash_report.h"

#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "base/core/error.h"
#include "base/system/signal_stack.h"

namespace megatron {

namespace {

constexpr unsigned kSecondsForStack = 10;
constexpr std::array<int, 5> kCrashSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// Data that the handler needs: it has no argument through which it could reach an object.
std::array<char, 512> where_text{};
std::array<char, 4096> file_name{};
std::atomic<const Activity*> doing{nullptr};
std::atomic<bool> stack_written{false};
std::array<std::atomic<const MappedFromDisk*>, 256> mapped_from_disk{};

// A line put together without memory from the heap and without locks; what does not fit is left out.
class SafeLine {
 public:
  SafeLine& operator<<(std::string_view text) {
    const std::size_t size = std::min(text.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, text.data(), size);
    size_ += size;
    return *this;
  }
  SafeLine& operator<<(long long number) {
    std::array<char, 24> digits{};
    std::size_t at = digits.size();
    const bool negative = number < 0;
    do digits[--at] = static_cast<char>('0' + std::abs(static_cast<int>(number % 10)));
    while ((number /= 10) != 0);
    if (negative) digits[--at] = '-';
    return *this << std::string_view(digits.data() + at, digits.size() - at);
  }
  void write(int file) const {
    if (::write(file, text_.data(), size_) < 0) return;  // no reader is left
  }

 private:
  std::array<char, 1024> text_;
  std::size_t size_ = 0;
};

const char* name_of_signal(int signal) {
  switch (signal) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    default: return "SIGABRT";
  }
}

void add_doing(SafeLine& line) {
  const Activity* activity = doing.load();
  if (activity == nullptr) return;
  line << " at step " << activity->step() << ", " << activity->phase().data();
  const Waiting waiting = activity->waiting();
  if (waiting.verb == Verb::none) return;
  line << ", waiting in " << name_of(waiting.verb) << " '" << activity->group().data() << "'";
}

/// Return addresses from `frame` upwards by the frame pointers that the build keeps (CMakeLists.txt): [saved frame
/// pointer, return address] each, at rising addresses. What looks like no frame is the end.
int addresses_above(const void* frame, std::span<void*> addresses) {
  constexpr std::uintptr_t kLargestFrame = 1 << 20;
  int found = 0;
  while (static_cast<std::size_t>(found) < addresses.size()) {
    struct Frame {
      const void* above;
      void* return_address;
    } values{};
    std::memcpy(&values, frame, sizeof values);
    if (values.return_address == nullptr) break;
    addresses[found++] = values.return_address;
    const auto here = reinterpret_cast<std::uintptr_t>(frame), next = reinterpret_cast<std::uintptr_t>(values.above);
    if (next <= here || next - here > kLargestFrame || next % alignof(Frame) != 0) break;
    frame = values.above;
  }
  return found;
}

/// Async-signal-safe but for backtrace() itself, which is when it has been called once before. Once a process.
void write_stack(std::string_view why) {
  if (stack_written.exchange(true)) return;
  int file =
      file_name[0] == '\0' ? -1 : ::open(file_name.data(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  const bool opened = file >= 0;
  if (!opened) file = STDERR_FILENO;
  SafeLine line;
  line << where_text.data() << ": " << why;
  add_doing(line);
  line << "\n";
  line.write(file);
  std::array<void*, 64> frames{};
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), static_cast<int>(frames.size())), file);
  if (const void* caller = GeneratedCode::caller()) {
    (SafeLine() << "in a library's generated code, called from\n").write(file);
    ::backtrace_symbols_fd(frames.data(), addresses_above(caller, frames), file);
  }
  if (opened) ::close(file);
}

/// Ends the process if a disk has failed under memory that is mapped to it.
void end_if_disk_failed(int signal, const siginfo_t* information) {
  const bool by_kernel = information->si_code > 0;  // only then it has an address
  const char* const text = signal == SIGBUS && by_kernel ? MappedFromDisk::line_at(information->si_addr) : nullptr;
  if (text == nullptr) return;
  (SafeLine() << "error: " << where_text.data() << ": " << text << "\n").write(STDERR_FILENO);
  ::_exit(static_cast<int>(ErrorKind::filesystem));
}

extern "C" void on_crash(int signal, siginfo_t* information, void*) {
  end_if_disk_failed(signal, information);
  std::signal(SIGALRM, SIG_DFL);
  ::alarm(kSecondsForStack);  // a crash inside the loader or malloc may leave a lock that backtrace() waits for
  SafeLine line;
  line << "error: " << where_text.data() << ": " << name_of_signal(signal);
  add_doing(line);
  line << "; the stack is " << (file_name[0] == '\0' ? "below" : "in ") << file_name.data() << "\n";
  line.write(STDERR_FILENO);
  write_stack(name_of_signal(signal));
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // takes effect when this handler returns
}

void on_no_memory() {
  write_stack("out of memory");
  std::set_new_handler(nullptr);  // operator new tries again, and throws
}

void on_internal_error() {
  write_stack("internal error");
}

template <std::size_t N>
void keep(std::array<char, N>& place, const std::string& text) {
  place.fill('\0');
  text.copy(place.data(), N - 1);
}

}  // namespace

MappedFromDisk::MappedFromDisk(const void* memory, std::size_t bytes, std::string line)
    : first_(static_cast<const std::byte*>(memory)), end_(first_ + bytes), line_(std::move(line)) {
  for (auto& place : mapped_from_disk) {
    const MappedFromDisk* none = nullptr;
    if (place.compare_exchange_strong(none, this)) return;
  }
}

MappedFromDisk::~MappedFromDisk() {
  for (auto& place : mapped_from_disk) {
    const MappedFromDisk* own = this;
    if (place.compare_exchange_strong(own, nullptr)) return;
  }
}

const char* MappedFromDisk::line_at(const void* address) {
  for (const auto& place : mapped_from_disk) {
    const MappedFromDisk* const one = place.load();
    const auto* const at = static_cast<const std::byte*>(address);
    if (one != nullptr && at >= one->first_ && at < one->end_) return one->line_.c_str();
  }
  return nullptr;
}

CrashReport::CrashReport(const std::string& where, const std::string& file, const Activity* activity) {
  keep(where_text, where);
  keep(file_name, file);
  doing = activity;
  stack_written = false;
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);  // loads what it needs now
  struct sigaction action = action_on_signal_stack(nullptr, SA_SIGINFO);
  action.sa_sigaction = on_crash;
  for (const int signal : kCrashSignals) ::sigaction(signal, &action, nullptr);
  std::set_new_handler(on_no_memory);
  set_internal_error_hook(on_internal_error);
}

std::string CrashReport::file_in(const std::string& directory, int rank) {
  return directory + "/backtrace_rank_" + std::to_string(rank) + ".txt";
}

void CrashReport::write_to(const std::string& file) {
  keep(file_name, file);
}

CrashReport::~CrashReport() {
  for (const int signal : kCrashSignals) std::signal(signal, SIG_DFL);
  std::set_new_handler(nullptr);
  set_internal_error_hook(nullptr);
  doing = nullptr;
}

}  // namespace megatron
