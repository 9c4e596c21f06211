#include <sched.h>

#include <thread>

#include "distributed/comm/thread_communicator.h"
#include "distributed/process/cores.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("cores: no warning for threads that fit their cores or for one thread") {
  CHECK(core_warnings({{"a", 4, {0, 1}}, {"a", 4, {2, 3}}, {"b", 4, {0, 1, 2, 3}}}, 2).empty());
  CHECK(core_warnings({{"a", 4, {0, 1, 2, 3}}, {"a", 4, {0, 1, 2, 3}}}, 2).empty());  // not bound, and enough for both
  CHECK(core_warnings({{"a", 1, {0}}, {"a", 1, {0}}, {"a", 1, {0}}}, 1).empty());
  CHECK(core_warnings({{"a", 4, {}}}, 64).empty());  // a system that does not tell
}

TEST_CASE("cores: ranks with fewer cores than threads are told how to get more") {
  const auto warnings = core_warnings({{"a", 9, {0}}, {"a", 9, {1, 2}}, {"a", 9, {3, 4, 5, 6, 7, 8}}}, 3);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("2 of 3 ranks") && Contains("(1 at the least)"));
  CHECK_THAT(warnings[0], Contains("--cpus-per-task=3") && Contains("slot:PE=3"));
}

TEST_CASE("hosts with fewer cores than threads are named") {
  const auto warnings = core_warnings({{"a", 2, {0, 1}}, {"a", 2, {0, 1}}, {"b", 2, {0, 1}}}, 2);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("a: 4 threads (2 of each rank) share 2 cores"));
}

TEST_CASE("cores: a process has those of its affinity mask and rank 0 gets all") {
  std::thread([] {  // a mask of one core, for this thread alone
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    int core = 0;
    while (!CPU_ISSET(core, &mask)) ++core;
    CPU_ZERO(&mask);
    CPU_SET(core, &mask);
    REQUIRE(sched_setaffinity(0, sizeof mask, &mask) == 0);
    CHECK(cores_of_process("a").cores == std::set<int>{core});
  })
      .join();
  run_as_threads(2, [](Communicator& world) {
    const auto warnings = core_warnings(world, "node7", CPU_SETSIZE);
    if (world.rank() != 0) return;
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0], Contains("node7: 2048 threads") || Contains("2 of 2 ranks"));
  });
}
