#include "training/loop/recovery_advice.h"

#include "base/text/text.h"
#include "checkpoint/store/checkpoint.h"

namespace megatron {

namespace {

std::string newest_before(const std::string& run_directory, std::int64_t step) try {
  for (const FoundCheckpoint& found : find_checkpoints(run_directory)) {
    if (found.step < step) return found.path;
  }
  return "";
} catch (const Error&) {
  return "";  // the error that is being reported comes first
}

}  // namespace

std::string recovery_advice(Communicator& world, const std::string& run_directory, std::int64_t step) {
  const std::string path = world.broadcast_text(world.rank() == 0 ? newest_before(run_directory, step) : "", 0);
  const std::string change = "a lower learning_rate.peak or a longer warm-up";
  if (path.empty()) return "there is no checkpoint from before: start again with " + change;
  return fmt::format(
      "the newest checkpoint from before is {}: continue from it in another run.directory, with checkpoint.load and {}",
      path, change);
}

void require_learned(Communicator& world, const std::string& run_directory, std::int64_t step, std::int64_t skipped) {
  if (skipped == 0) return;
  const std::int64_t learned = step - skipped;
  fail(ErrorKind::numerics,
       "the run has ended at step {}, but its last {} been skipped, as loss or gradient were not finite: "
       "its parameters are those of step {}, and may be what is wrong; {}",
       step, skipped == 1 ? "step has" : fmt::format("{} steps have", skipped), learned,
       recovery_advice(world, run_directory, learned));
}

}  // namespace megatron
