#include "base/terminal/interrupt_flag.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("interrupt flag: a signal raises it on another stack while it exists") {
  struct sigaction before {
  }, during{}, after{};
  REQUIRE(::sigaction(SIGUSR1, nullptr, &before) == 0);
  {
    InterruptFlag flag(kCtrlC);
    CHECK(flag.raised() == 0);
    REQUIRE(::sigaction(SIGUSR1, nullptr, &during) == 0);
    // oneDNN's kernels may have their stack pointer in the heap.
    CHECK((during.sa_flags & SA_ONSTACK) != 0);
    stack_t stack{};
    REQUIRE(::sigaltstack(nullptr, &stack) == 0);
    CHECK((stack.ss_flags & SS_DISABLE) == 0);
    std::raise(SIGUSR1);
    CHECK(flag.raised() == SIGUSR1);
    flag.clear();
    CHECK(flag.raised() == 0);
  }
  REQUIRE(::sigaction(SIGUSR1, nullptr, &after) == 0);
  CHECK(after.sa_handler == before.sa_handler);
}
