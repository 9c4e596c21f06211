// RunEvaluations: what a run evaluates after a step, in what order, and where the results go: metrics, a line on the
// screen, the plot. Keeps what is still due, so that a run that stops in an evaluation loses none of it. The losses
// and scores are the Trainer's work; when to train, save and stop is TrainingLoop's to say.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "monitoring/metrics/run_watch.h"
#include "training/datasets/evaluation_tasks.h"
#include "training/loop/run_outputs.h"
#include "training/step/trainer.h"

namespace megatron {

/// Seconds since 1970, for lines of the metrics.
double wall_seconds();

class RunEvaluations {
 public:
  /// All references must outlive it. `tasks`: the configuration's.
  RunEvaluations(const Config& config, Datasets& datasets, std::span<const TrainingTask> tasks, Trainer& trainer,
                 RunOutputs& outputs, RunWatch& watch)
      : config_(config), datasets_(datasets), tasks_(tasks), trainer_(trainer), outputs_(outputs), watch_(watch) {}

  /// Splits, and tasks with kTaskDue in front of their names.
  const std::vector<std::string>& due() const { return due_; }
  /// After the step that was trained last.
  void add_due();
  /// Before the first step: validation, and the tasks with an interval.
  void add_due_at_start();
  /// One after the other. Asks `stop` in between; false when a stop came before the end. Collective.
  bool perform(const std::function<bool()>& stop);

  bool has_validation() const { return datasets_.validation() || !datasets_.validation_sets().empty(); }
  /// The loss of the last evaluation on validation, equal on all ranks of equal hosts; not finite before there was one.
  struct Validated {
    std::int64_t step = -1;
    double loss = std::numeric_limits<double>::infinity();
  };
  const Validated& validated() const { return validated_; }

  /// Into and out of a checkpoint's loop state. Takes what is due, without tasks that the run no longer has, and
  /// returns what evaluations are of now and were not then. Error(checkpoint), or nlohmann's for a damaged state.
  void write_state(nlohmann::json& loop) const;
  std::vector<FactDifference> take_state(const nlohmann::json& loop);

 private:
  bool follows(std::int64_t step) const;
  /// Null for a split, or if the run has no such task.
  const TrainingTask* find_task(const std::string& due) const;
  bool evaluate_split(const std::string& split, const std::function<bool()>& stop);
  /// The mean by the sets' shares; `each`, set, has their own. Nothing after a stop.
  std::optional<EvaluatedLoss> evaluate_sets(const std::vector<NamedSet>& sets, std::int64_t first_sample,
                                             const std::function<bool()>& stop, std::vector<EvaluatedLoss>& each);
  void report(const std::string& split, const EvaluatedLoss& loss);
  bool evaluate_task(const TrainingTask& task, const std::function<bool()>& stop);
  void tell(const std::string& name, double loss, const std::string& line);

  const Config& config_;
  Datasets& datasets_;
  std::span<const TrainingTask> tasks_;
  Trainer& trainer_;
  RunOutputs& outputs_;
  RunWatch& watch_;
  std::vector<std::string> due_;
  Validated validated_;
};

/// Whether the run of this checkpoint was stopped before the evaluations of its last step were done.
bool evaluations_due(const CheckpointReader& checkpoint);

}  // namespace megatron
