// Trainer: a training run in memory: replica, batches, learning rate and the counters that a checkpoint holds. Every
// function is collective over the grid. Knows how to save and load, not when: training_loop.h decides that.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/store/background_save.h"
#include "checkpoint/store/checkpoint.h"
#include "config/schema/run_schedule.h"
#include "training/diagnostics/replica_check.h"
#include "training/optimizer/learning_rate.h"
#include "training/optimizer/loss_scaler.h"
#include "training/optimizer/weight_decay.h"
#include "training/step/compatibility.h"
#include "training/step/device_batches.h"
#include "training/step/expert_use.h"
#include "training/step/label_scores.h"
#include "training/step/replica.h"
#include "training/step/sequence_scores.h"

namespace megatron {

struct StepResult {
  StepShape batch;  ///< that the step trained on
  double loss = 0, gradient_norm = 0, learning_rate = 0, weight_decay = 0;
  std::vector<double> loss_terms;   ///< by term, its mean; the loss is made of these (models/families/loss_terms.h)
  std::vector<double> loss_counts;  ///< by term: the mean is over so much (training/step/loss_counts.h)
  double loss_scale = 1;
  std::optional<double> parameter_norm = {};  ///< after the update; set by the training loop
  ExpertUse experts = {};                     ///< choices of its tokens, where the model has experts
  bool skipped = false;                       ///< the loss or the gradient was not finite: nothing was changed
  bool searching = false;  ///< skipped for its gradient alone, and a smaller loss scale may be all it takes
};

/// Loss of an evaluation, over all its samples.
struct EvaluatedLoss {
  double total = 0;
  std::vector<double> terms;               ///< by term, its mean
  std::optional<LabelCounts> labels = {};  ///< if the model has a task's head
};

/// Result of starting a new run with another's model.
struct InitialWeights {
  std::vector<FactDifference> changes;  ///< facts that may be others, and are
  bool task_head = false;               ///< the head of the task is the checkpoint's; else it is new, or there is none
};

/// Result of a closer look at a skipped step, the same on every rank.
struct SkipReport {
  std::string why;                   ///< in words
  bool smaller_scale_cures = false;  ///< at the smallest loss scale of the search everything is finite
};

class Trainer {
 public:
  /// `config` must be resolved; all references must outlive the trainer.
  Trainer(const Config& config, const ProcessGrid& grid, Backend& backend, Datasets& datasets);

  /// `before_update`, if given, may look at the replica's summed gradients, which are the loss' times the loss scale
  /// that it is told, and replace them.
  StepResult train_step(const std::function<void(double loss_scale)>& before_update = {});
  /// L2 norm of all trained parameters as they are now, the same on every rank. Waits for the device.
  double parameter_norm() { return replica_.parameter_norm(timers_); }
  /// Mean loss over the evaluation_samples() of a set from the given one on, each of which counts once. `stop` is asked
  /// before each batch, collectively; nothing when it said yes.
  std::optional<EvaluatedLoss> evaluate(const SampleSet& samples, std::int64_t first_sample,
                                        const std::function<bool()>& stop);
  /// The scores of an evaluation task's targets, on every rank; `stop` as in evaluate(). For a configuration that has
  /// tasks.
  std::optional<std::vector<TargetScore>> score(std::span<const ScoredSequence> sequences,
                                                const std::function<bool()>& stop);
  const LossTerms& loss_terms() const { return terms_; }

  ~Trainer();  ///< takes its meter off the grid's communicators

  /// `loop` is the caller's own state, an object that resuming gives back.
  /// `options.keep_last` is the configuration's.
  SaveReport save(const std::string& run_directory, const nlohmann::json& loop, SaveOptions options = {});
  /// The same, but only begins it where saves_in_background(): what background_save() has under way, and the two below
  /// bring to its end (background_save.h). What it saves is of now: the next step's update, and loading, wait until it
  /// has been copied.
  void start_save(const std::string& run_directory, const nlohmann::json& loop, SaveOptions options = {});
  std::optional<SaveReport> advance_save();
  BackgroundSave* background_save() const { return background_save_.get(); }
  /// Weights, moments and counters; returns what save() was given as `loop`. `chosen_by`: the key that says of which
  /// checkpoint, for errors.
  nlohmann::json resume(const CheckpointReader& checkpoint, const std::string& chosen_by = "run.directory");
  /// Weights alone: a new run from another's model, whose samples begin after checkpoint.consumed_samples. A task's
  /// head is new, unless the checkpoint has one for the same labels.
  InitialWeights initialize_from(const CheckpointReader& checkpoint);

  /// The next step's.
  double loss_scale() const { return loss_scaler_.scale(); }
  /// Right after a step that was skipped, once: why. Plays it again, where a search for the loss scale continues at the
  /// smallest one that it may come to; as costly as the step.
  SkipReport explain_skip(const StepResult& result);
  /// Throws Error(numerics) on every rank if they are not all finite.
  void require_finite_parameters();
  /// All copies of a parameter are the same bits, or this is an Error(numerics) on every rank that says whose are
  /// not.
  void check_replicas();

  /// Facts that this run's order of samples depends on and that have other values in the checkpoint.
  std::vector<FactDifference> changed_order(const CheckpointReader& checkpoint) const;

  std::int64_t step() const { return step_; }
  std::int64_t samples() const { return schedule_.samples_after(step_); }
  std::int64_t tokens() const { return schedule_.tokens_after(step_); }
  StepShape next_step() const { return schedule_.step_after(step_); }
  double next_tokens() const { return static_cast<double>(schedule_.step_after(step_).tokens()); }
  double remaining_tokens() const {
    return static_cast<double>(schedule_.tokens_after(config_.train.steps) - tokens());
  }
  bool finished() const { return step_ >= config_.train.steps; }

  Replica& replica() { return replica_; }
  Timers& timers() { return timers_; }
  const TrafficMeter& traffic() const { return traffic_; }
  /// Bytes held of everything that the plan predicts.
  MemoryUse used() const {
    MemoryUse used = replica_.used();
    used.batch =
        batch_memory_.bytes() + (scores_ ? scores_->bytes() : 0) + (label_scores_ ? label_scores_->bytes() : 0);
    if (background_save_) used.add_snapshot(background_save_->bytes(), backend_.device->is_host_memory());
    return used;
  }

 private:
  void load(const CheckpointReader& checkpoint, const std::vector<TensorSlice>& slices);
  void carry_on(const CheckpointReader& checkpoint);
  /// Before weights or the optimizer's state are changed, wherever that is.
  void wait_until_copied();
  BatchPlan training_plan() const;
  void set_consumed_before(std::int64_t samples);
  nlohmann::json facts() const;
  TrainingState state(const nlohmann::json& loop) const;
  void set_meters(TrafficMeter* meter);
  std::function<bool(const BatchField&)> read_here() const;  ///< by a stage of this rank

  const Config& config_;
  nlohmann::json carried_;  // kCarriedKeys of the checkpoint that the weights are from
  const ProcessGrid& grid_;
  Backend& backend_;
  Datasets& datasets_;
  Timers timers_;
  TrafficMeter traffic_;
  Replica replica_;
  BatchMemory batch_memory_;
  std::optional<SequenceScores> scores_;     // if there are tasks; its passes use batch_memory_ in turn with the others
  std::optional<LabelScores> label_scores_;  // if the model has a task's head
  LossTerms terms_;
  std::vector<double> loss_counts_;  // the last step's, by term
  RunSchedule schedule_;
  LearningRate learning_rate_;
  WeightDecay weight_decay_;
  LossScaler loss_scaler_;
  std::unique_ptr<DeviceBatches> batches_;           // from the first step after a start or resume
  std::span<const MicroBatch> micro_batches_;        // the last step's, until an evaluation
  std::unique_ptr<ReplicaCheck> replica_check_;      // from the first check on
  std::unique_ptr<BackgroundSave> background_save_;  // if checkpoints are written in the background; reads replica_
  std::int64_t step_ = 0;                            // the schedule tells samples and tokens from it
  std::int64_t consumed_before_ = 0;                 // samples of the data's order, before the run
};

}  // namespace megatron
