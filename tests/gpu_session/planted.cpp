// Tests of a GPU machine on a bad day, one of which hangs, crashes, fails or loses the device, as PLANTED says. For
// play.sh.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "cuda/cuda_check.h"
#include "support/catch.h"

namespace {

void misbehave() {
  const char* planted = std::getenv("PLANTED");
  const std::string fault = planted == nullptr ? "" : planted;
  if (fault == "hang") {
    while (true) pause();
  }
  if (fault == "abort") std::abort();  // the test framework still says that the test failed
  if (fault == "crash") kill(getpid(), SIGKILL);
  if (fault == "lose") emulated_cuda::lose_device();
  CHECK(fault != "fail");
}

}  // namespace

TEST_CASE("planted: the first, which passes") {
  CHECK(true);
}

TEST_CASE("planted: the second, which misbehaves [as \"planted\"], ~*") {
  misbehave();
}

TEST_CASE("planted: the third, which passes", "[two-ranks]") {  // the tag that the session asks for
  CHECK(true);
}
