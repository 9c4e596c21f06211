// Programs on a CPU that lacks what they were compiled for. The check is the programs' own, linked into a program that
// asks for sse3 (which every CPU since 2005 has), xop (which none has since 2017) and a name nobody knows.
#include <catch2/catch.hpp>

#include "faults/runs.h"

#ifdef MEGATRON_NEVER_STARTS

namespace {

bool cpu_has(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags")) return (line + " ").find(" " + flag + " ") != std::string::npos;
  }
  return false;
}

void require_refusal(const Finished& finished) {
  INFO(finished.err);
  CHECK(finished.code == 2);
  CHECK(mentions(finished.err, "was built for other CPUs (ARCH=never)"));
  if (!cpu_has("xop")) CHECK(mentions(finished.err, "this one lacks xop never.\n"));
  CHECK(mentions(finished.err, "make ARCH=x86-64-v3"));
  CHECK(finished.out.find(" ran") == std::string::npos);
}

}  // namespace

TEST_CASE("a program on the wrong CPU says what is missing before any of its own code runs") {
  require_refusal(run_command({MEGATRON_NEVER_STARTS}, 10));
}

TEST_CASE("the same under the launcher: its exit code, and one message") {
  const Finished finished = run_command(launched(3, {MEGATRON_NEVER_STARTS}), 30);
  require_refusal(finished);
  CHECK(finished.err.find("this one lacks") == finished.err.rfind("this one lacks"));
}

#endif
