#include <string>

#include "base/core/activity.h"
#include "base/core/timers.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("an activity tells step, phase and what is waited for", "[fault-31]") {
  Activity activity;
  CHECK(activity.rank() == -1);
  CHECK(activity.process() == 0);
  activity.set_step(41);
  activity.set_phase("backward");
  CHECK(describe(activity) == "step 41, backward, not waiting for other ranks");
  activity.begin_waiting({Verb::all_reduce, -1, 4 << 20}, "tensor");
  CHECK(describe(activity) == "step 41, backward, waits in all-reduce 'tensor' of 4194304 bytes");
  activity.begin_waiting({Verb::all_to_all, -1, 4096}, "expert");
  CHECK(describe(activity) == "step 41, backward, waits in all-to-all 'expert' of 4096 bytes");
  activity.begin_waiting({Verb::receive, 2, 64}, "pipeline");
  CHECK(describe(activity) == "step 41, backward, waits in receive 'pipeline' of 64 bytes from its rank 2");
  activity.begin_waiting({Verb::send, 3, 64}, "pipeline");
  CHECK(describe(activity) == "step 41, backward, waits in send 'pipeline' of 64 bytes to its rank 3");
  activity.begin_waiting({Verb::barrier}, "world");
  CHECK(describe(activity) == "step 41, backward, waits in barrier 'world'");
  activity.end_waiting();
  activity.set_phase("a phase with a very long name");
  CHECK(describe(activity) == "step 41, a phase with a v, not waiting for other ranks");
}

TEST_CASE("every beginning and end is a change", "[fault-31]") {
  Activity activity;
  const auto changes = [&](auto&& act) {
    const std::uint64_t before = activity.changes();
    act();
    return activity.changes() - before;
  };
  CHECK(changes([&] { activity.set_step(1); }) == 1);
  CHECK(changes([&] { activity.set_phase("data"); }) == 1);
  CHECK(changes([&] { activity.begin_waiting({Verb::barrier}, "world"); }) == 1);
  CHECK(changes([&] { activity.end_waiting(); }) == 1);
}

TEST_CASE("activity: sections set the phase but communication keeps it", "[fault-31]") {
  Activity activity;
  Timers timers;
  timers.set_activity(&activity);
  const auto phase = [&] { return std::string(activity.phase().data()); };
  {
    const auto backward = timers.scope(Section::backward);
    CHECK(phase() == "backward");
    {
      const auto communication = timers.scope(Section::communication);
      CHECK(phase() == "backward");
    }
    {
      const auto saving = timers.scope(Section::saving);
      CHECK(phase() == "saving");
    }
    CHECK(phase() == "backward");
  }
  CHECK(phase() == "other");
}
