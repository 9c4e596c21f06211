// The two halves of tests/faults/checkpoint_faults.sh: a save during which the script makes a system call fail or kills
// the process, and the examination of what is left. The run directory is in CHECKPOINT_TEST_RUN.
#include <fmt/format.h>

#include <cstdlib>

#include "checkpoint/store/finish_save.h"
#include "checkpoint/store/layouts.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string run_directory() {
  const char* run = std::getenv("CHECKPOINT_TEST_RUN");
  REQUIRE(run != nullptr);
  return run;
}

void save_beside(const std::string& run, int step) {
  const Layout layout = split_along(kWideTensors, 2, 0);
  run_as_threads(2, [&](Communicator& world) {
    const SliceMemory memory(kWideTensors, layout[static_cast<std::size_t>(world.rank())], 2, step);
    CpuDevice device;
    BackgroundSave save(world, device, snapshot_bytes(memory.slices()));
    save.start(run, state_at(step), memory.slices(), {.keep_last = 2});
    finish(save);
  });
}

}  // namespace

TEST_CASE("save the next step and tell how it went", "[.inject]") {
  const std::string run = run_directory();
  const auto found = find_checkpoints(run);
  const int step = found.empty() ? 1 : static_cast<int>(found[0].step) + 1;
  try {
    if (std::getenv("CHECKPOINT_TEST_BACKGROUND") != nullptr) {
      save_beside(run, step);
    } else {
      save_as(run, kWideTensors, split_along(kWideTensors, 2, 0), step, 2);
    }
    write_file(run + "/outcome", fmt::format("saved {}", step));
  } catch (const Error& error) {
    write_file(run + "/outcome", fmt::format("failed {}", error.exit_code()));
    CHECK(error.exit_code() == 7);
  }
}

TEST_CASE("what is left can be loaded, is newest, and can be saved upon", "[.examine]") {
  const std::string run = run_directory();
  const std::string outcome = contents_of(run + "/outcome");  // empty: killed
  INFO("outcome: " << outcome);
  const Loaded loaded = load_newest(run, kWideTensors, split_along(kWideTensors, 1, 0));
  CHECK(loaded.wrong == 0);
  CHECK(loaded.warnings.empty());
  REQUIRE(loaded.step >= 3);  // the script has saved 1, 2 and 3
  CHECK(loaded.step <= 4);
  if (outcome == "saved 4") CHECK(loaded.step == 4);
  if (outcome.starts_with("failed")) {
    for (const std::string& name : names_in(run + "/checkpoints")) {
      CHECK_THAT(name, !StartsWith(".tmp_step"));
    }
  }
  const int next = static_cast<int>(loaded.step) + 1;
  save_as(run, kWideTensors, split_along(kWideTensors, 3, 1), next, 2);
  CHECK(load_newest(run, kWideTensors, split_along(kWideTensors, 2, 0)).step == next);
}
