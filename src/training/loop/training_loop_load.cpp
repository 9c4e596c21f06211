// TrainingLoop's beginning: the checkpoint that a run continues from, and the changes since.
#include <algorithm>

#include "base/text/foreign_json.h"
#include "config/schema/print.h"
#include "distributed/comm/agreement.h"
#include "training/loop/training_loop.h"
#include "training/step/compatibility.h"

namespace megatron {

// A run continues in the order it began with, or says that it does not.
void TrainingLoop::check_order(const CheckpointReader& checkpoint, bool own) {
  std::uint64_t data_hash = 0;
  read_state(checkpoint, [&](const nlohmann::json& extra) { data_hash = extra.at("data_hash").get<std::uint64_t>(); });
  const bool same_data = data_hash == datasets_.train_hash();
  const std::string changes = list_of(data_order_mismatches(trainer_.changed_order(checkpoint), same_data));
  if (changes.empty()) return;
  verify(!own, ErrorKind::checkpoint,
         "{}: the order of samples would change in the middle of the run, because it depends on these; resume with the "
         "same (with Megatron's orders, data.order_samples keeps the order where the run's length changes), or "
         "start a new run.directory with this one as checkpoint.load, which takes the new order from here on:{}",
         checkpoint.path(), changes);
  log_.warning(
      "the samples from here on are in another order than the checkpoint's run had; some of a pass come again, "
      "others not at all:{}",
      changes);
}

void TrainingLoop::resume_from(const CheckpointReader& checkpoint, const std::string& chosen_by) {
  const nlohmann::json loop = trainer_.resume(checkpoint, chosen_by);
  std::string saved_config;
  std::vector<FactDifference> evaluations;
  std::uint64_t data_hash = 0;
  BestSave best;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    skips_.set_state(loop, trainer_.step());
    const bool own = chosen_by == "run.directory";  // another run's lines are not in this run's metrics
    if (own && loop.contains(kLossSinceLine)) since_metrics_.set_loss_state(object_at(loop, kLossSinceLine));
    if (own && loop.contains(kBestState)) best = BestSave::from_state(object_at(loop, kBestState));
    evaluations = evaluations_.take_state(loop);
    saved_config = extra.at("config").get<std::string>();
    data_hash = extra.at("data_hash").get<std::uint64_t>();
  });
  log_.info("resuming from {} at step {}", checkpoint.path(), trainer_.step());
  const bool compares = std::none_of(evaluations.begin(), evaluations.end(),
                                     [](const FactDifference& change) { return change.key.starts_with("validation"); });
  if (!compares && best.step >= 0) {
    log_.warning(
        "the checkpoint of step {} was the best on other validation samples; checkpoint.keep_best begins anew, and it "
        "stays no longer than the others",
        best.step);
    best = {};
  }
  saves_.resumed_with_best(best);
  for (const std::string& change : changed_keys(saved_config, config_)) {
    log_.info("  changed since the checkpoint: {}", change);
  }
  if (data_hash != datasets_.train_hash()) {
    log_.warning("data.train holds other {} than when the checkpoint was written; the samples that follow differ",
                 config_.task.given() ? "examples" : "tokens");
  }
  if (!evaluations.empty()) {
    log_.warning("evaluations are of other samples than before: losses from here on do not compare with those:{}",
                 list_of(evaluations));
  }
  if (trainer_.finished()) log_.info("nothing is left to train: step {} of {}", trainer_.step(), config_.train.steps);
}

void TrainingLoop::load(const std::optional<CheckpointReader>& own) {
  watch_.begin("loading");
  std::vector<std::string> warnings;
  const CheckpointConfig& checkpoint = config_.checkpoint;
  if (own) {
    check_order(*own, true);
    resume_from(*own, "run.directory");
    saves_.resumed_at(here());
  } else if (!checkpoint.load.empty()) {
    const CheckpointReader other = open_named_checkpoint(world_, checkpoint.load, warnings);
    check_order(other, false);
    resume_from(other, "checkpoint.load");
  } else if (!checkpoint.initialize_from.empty()) {
    const CheckpointReader other = open_named_checkpoint(world_, checkpoint.initialize_from, warnings);
    const InitialWeights initial = trainer_.initialize_from(other);
    log_.info("weights from {}", other.path());
    if (const std::int64_t consumed = checkpoint.consumed_samples; consumed > 0) {
      log_.info("  the data's order begins after {} consumed samples; steps, samples and rate begin at 0", consumed);
    }
    for (const FactDifference& change : initial.changes) {
      if (change.key == "task" || change.key.starts_with("task.")) continue;
      log_.info("  of a model with {} = {}, this run's has {}", change.key, change.saved, change.current);
    }
    if (config_.task.has_head()) {
      log_.info("  the head of the task (task_head.*) {}", initial.task_head ? "is the checkpoint's" : "is new");
    }
  }
  if (!own) saves_.resumed_at({});
  for (const std::string& warning : warnings) log_.warning(std::string_view(warning));
}

void TrainingLoop::continue_metrics() {
  // Due before lines of a start that was cut short are looked for, so that they go.
  if (config_.train.evaluate_at_start && trainer_.step() == 0 && !saves_.any()) evaluations_.add_due_at_start();
  const auto cut_back = [&] { outputs_.continue_after(trainer_.step(), evaluations_.due()); };
  on_rank_0(world_, cut_back, ErrorKind::filesystem);
}

}  // namespace megatron
