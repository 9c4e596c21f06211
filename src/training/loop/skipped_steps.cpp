#include "training/loop/skipped_steps.h"

#include "training/loop/recovery_advice.h"

namespace megatron {

namespace {

void log_search(const Trainer& trainer, const StepResult& result, bool looked_closer, Log& log) {
  const double next = trainer.loss_scale();
  log.info("step {} is skipped: the gradient overflows at a loss scale of {}{}; {}", trainer.step(), result.loss_scale,
           looked_closer ? ", though not at the smallest" : "",
           next < result.loss_scale ? fmt::format("lowered to {}", next) : "lowered if it does again");
}

}  // namespace

void observe_step(const Config& config, Communicator& world, Trainer& trainer, SkippedStepPolicy& policy,
                  const StepResult& result, bool ends, Log& log) {
  const SkipAction action = policy.observe(result.skipped, result.searching, ends);
  if (action == SkipAction::none) return;
  if (action == SkipAction::search) return log_search(trainer, result, false, log);
  const std::int64_t in_a_row = policy.in_a_row();
  if (action == SkipAction::warn) {
    log.warning("step {} is skipped: loss or gradient are not finite, {} steps in a row now", trainer.step(), in_a_row);
    return;
  }
  const SkipReport report = trainer.explain_skip(result);
  policy.explained(report.smaller_scale_cures);
  if (report.smaller_scale_cures) return log_search(trainer, result, true, log);
  if (action == SkipAction::give_up) {
    fail(
        ErrorKind::numerics,
        "step {}: loss or gradient have not been finite for {} steps in a row (train.max_skipped_steps){}, and nothing "
        "is learned any more: {}; {}",
        trainer.step(), in_a_row,
        result.loss_scale != 1 ? fmt::format(" at a loss scale of {}", result.loss_scale) : "", report.why,
        recovery_advice(world, config.run.directory, trainer.step() - in_a_row));
  }
  log.warning("step {} is skipped: {}", trainer.step(), report.why);
}

}  // namespace megatron
