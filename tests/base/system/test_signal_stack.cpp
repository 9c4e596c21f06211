#include "base/system/signal_stack.h"
#include "support/catch.h"

#include <pthread.h>

#include <cstdint>

using namespace megatron;

namespace {

volatile std::uintptr_t handler_frame = 0;

void remember_frame(int) {
  handler_frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
}

bool on_own_stack(std::uintptr_t address) {
  pthread_attr_t attributes;
  void* lowest = nullptr;
  std::size_t bytes = 0;
  REQUIRE(::pthread_getattr_np(::pthread_self(), &attributes) == 0);
  REQUIRE(::pthread_attr_getstack(&attributes, &lowest, &bytes) == 0);
  ::pthread_attr_destroy(&attributes);
  const auto first = reinterpret_cast<std::uintptr_t>(lowest);
  return address >= first && address < first + bytes;
}

}  // namespace

TEST_CASE("a handler runs on the signal stack, however often one is asked for") {
  struct sigaction previous {};
  for (int i = 0; i < 2; ++i) {
    const struct sigaction action = action_on_signal_stack(remember_frame, SA_RESTART);
    CHECK((action.sa_flags & SA_RESTART) != 0);
    REQUIRE(::sigaction(SIGWINCH, &action, i == 0 ? &previous : nullptr) == 0);
    handler_frame = 0;
    std::raise(SIGWINCH);
    CHECK(handler_frame != 0);
    CHECK_FALSE(on_own_stack(handler_frame));
  }
  // And not so without it: the check can fail.
  struct sigaction plain {};
  plain.sa_handler = remember_frame;
  REQUIRE(::sigaction(SIGWINCH, &plain, nullptr) == 0);
  std::raise(SIGWINCH);
  CHECK(on_own_stack(handler_frame));
  ::sigaction(SIGWINCH, &previous, nullptr);
}
