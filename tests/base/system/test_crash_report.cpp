#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <new>
#include <sstream>
#include <string>

#include "base/core/error.h"
#include "base/system/crash_report.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

struct Death {
  int signal = 0, code = 0;
  std::string said, stack;
};

/// Runs `body` in a child process under a crash report and returns what is left of it; `file`: whether it may write the
/// stack's file.
template <class Body>
Death death_of(Body body, bool file = true) {
  const TemporaryFolder folder;
  const std::string stack = file ? folder.file("stack.txt") : folder.file("missing/stack.txt"),
                    said = folder.file("said.txt");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    if (std::freopen(said.c_str(), "w", stderr) == nullptr) ::_exit(99);
    // Not the test program's own handlers, and not its sanitizer's.
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, SIG_DFL);
    Activity activity;
    activity.set_step(41);
    activity.set_phase("backward");
    activity.begin_waiting({Verb::receive, 2, 64}, "pipeline");
    {
      const CrashReport report("rank 3 of 8 on node07", stack, &activity);
      body();
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents_of(said),
          contents_of(stack)};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Endless on purpose; the sum after the call keeps it from becoming a loop.
int overflow_stack(volatile int* depth) {
  volatile char frame[4096] = {};
  *depth = *depth + 1;
  frame[0] = 1;
  return *depth < 0 ? 0 : overflow_stack(depth) + frame[0];
}

}  // namespace

TEST_CASE("a crash says who, in what and where, and dies of its signal", "[fault-32]") {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    CAPTURE(signal);
    const Death death = death_of([&] { std::raise(signal); });
    CHECK(death.signal == signal);
    CHECK(contains(death.said, "error: rank 3 of 8 on node07: SIG"));
    CHECK(contains(death.said, "at step 41, backward, waiting in receive 'pipeline'; the stack is in "));
    CHECK(contains(death.stack, "at step 41, backward"));
    CHECK(contains(death.stack, "test_system"));
  }
  const Death nowhere = death_of([] { std::raise(SIGSEGV); }, false);
  CHECK(nowhere.signal == SIGSEGV);
  CHECK(contains(nowhere.said, "test_system"));  // the stack, for want of a file
}

TEST_CASE("a stack that overflows is told as well", "[fault-32]") {
  const Death death = death_of([] {
    volatile int depth = 0;
    overflow_stack(&depth);
  });
  CHECK(death.signal == SIGSEGV);
  CHECK(contains(death.stack, "SIGSEGV"));
}

#ifdef __x86_64__
namespace {

/// Code as a library makes it at run time: leaves no way back that an unwinder knows, and crashes.
void* crashing_code() {
  const unsigned char instructions[] = {0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00,  // sub rsp, 4096
                                        0x31, 0xed,                                // xor ebp, ebp
                                        0x0f, 0x0b};                               // ud2
  void* const place = ::mmap(nullptr, sizeof instructions, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) ::_exit(98);
  std::memcpy(place, instructions, sizeof instructions);
  if (::mprotect(place, sizeof instructions, PROT_READ | PROT_EXEC) != 0) ::_exit(98);
  return place;
}

/// Crashes there, below `depth` calls.
[[gnu::noinline]] void crash_below(int depth) {
  if (depth > 0) {
    crash_below(depth - 1);
    asm volatile("");  // keeps the call from becoming a jump
    return;
  }
  const GeneratedCode generated;
  reinterpret_cast<void (*)()>(crashing_code())();
}

std::ptrdiff_t lines_with(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(lines, line);) count += contains(line, part) ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("a crash in generated code is told with the stack of who called it", "[fault-32]") {
  const Death death = death_of([] { crash_below(3); });
  CHECK(death.signal == SIGILL);
  const std::size_t callers = death.stack.find("called from\n");
  REQUIRE(callers != std::string::npos);
  INFO(death.stack);
  CHECK(lines_with(death.stack.substr(callers), "test_system") >= 4);  // libraries may have no frame pointers

  const Death later = death_of([] {
    { const GeneratedCode generated; }
    std::raise(SIGILL);
  });
  CHECK_FALSE(contains(later.stack, "called from"));
}
#endif

TEST_CASE("crash report: internal errors and lack of memory leave their stack", "[fault-32]") {
  const Death internal = death_of([] {
    try {
      internal_check(false, "a promise");
    } catch (const Error&) {
    }
  });
  CHECK(internal.code == 0);  // the report leaves the handling to others
  CHECK(contains(internal.stack, "internal error at step 41"));

  const Death memory = death_of([] {
    try {
      volatile std::size_t much = std::size_t{1} << 60;
      char* volatile place = new char[much];
      ::_exit(place == nullptr ? 3 : 4);
    } catch (const std::bad_alloc&) {
    }
  });
  CHECK(memory.code == 0);
  CHECK(contains(memory.stack, "out of memory at step 41"));

  const Death escaped = death_of([]() noexcept { fail(ErrorKind::data, "never caught"); });
  CHECK(escaped.signal == SIGABRT);
  CHECK(contains(escaped.stack, "SIGABRT"));

  const Death ordinary = death_of([] {
    try {
      fail(ErrorKind::data, "a user's mistake");
    } catch (const Error&) {
    }
  });
  CHECK(ordinary.stack.empty());
  CHECK(ordinary.said.empty());
}
