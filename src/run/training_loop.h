// TrainingLoop: decides when to evaluate, save and stop, and keeps the run's files: metrics, progress lines, plot, the
// end table. The work itself is Trainer's. Every function is collective over the grid.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "job/run_limits.h"
#include "job/run_lock.h"
#include "job/stop_signals.h"
#include "monitor/loss_plot.h"
#include "monitor/metrics.h"
#include "monitor/progress.h"
#include "monitor/run_watch.h"
#include "run/run_saves.h"
#include "run/skipped_step_policy.h"
#include "system/log.h"
#include "train/evaluation_tasks.h"
#include "train/interval.h"
#include "train/trainer.h"

namespace megatron {

class TrainingLoop {
 public:
  /// All references must outlive the loop; `config` must be resolved. `tasks`: the configuration's. `lock`: rank 0's,
  /// of the run directory.
  TrainingLoop(const Config& config, const ProcessGrid& grid, Backend& backend, Datasets& datasets,
               std::span<const TrainingTask> tasks, Log& log, StopSignals& signals, const TimeLimits& time_limits,
               RunLock* lock = nullptr);

  /// Resumes from this run's own checkpoint if there is one, else starts as checkpoint.load or initialize_from say.
  void load(const std::optional<CheckpointReader>& own);
  std::int64_t step() const { return trainer_.step(); }
  /// What this step has yet to be evaluated on: splits, and tasks with kTaskDue in front of their names.
  const std::vector<std::string>& evaluations_due() const { return evaluations_due_; }

  /// Trains to the end or to train.stop_after and returns 0; or until a stop signal, a time limit or the stop file ends
  /// it, and returns kExitStoppedEarly with a good checkpoint.
  int run();

 private:
  enum class Request { none = 0, save = 1, stop = 2 };
  Request request();
  bool stop_requested();
  int stop();
  /// Whether train.stop_after ends the program here.
  bool stops_here() const;
  /// Saves the last step, unless nothing is kept, and says how it ended. Returns the exit code.
  int end();
  void check_order(const CheckpointReader& checkpoint, bool own);
  void resume_from(const CheckpointReader& checkpoint, const std::string& chosen_by);
  void train_one_step();
  /// Unless this step has been checked already.
  void check_replicas();
  bool evaluation_follows(std::int64_t step) const;
  void record(const StepResult& result, double seconds);
  void write_metrics(const StepResult& result);
  void print_progress(const StepResult& result);
  /// After the step that was trained last.
  std::vector<std::string> evaluations_here() const;
  /// Of what is due, the task; null for a split, or if the run has no such task.
  const TrainingTask* find_task(const std::string& due) const;
  /// False when a stop came before its end.
  bool evaluate(const std::string& due);
  bool evaluate_split(const std::string& split);
  bool evaluate_task(const TrainingTask& task);
  bool evaluate_what_is_due();
  SavePoint here() const;
  /// Saves this step, or begins to, unless it has been saved already.
  void save();
  /// For the end of the program: it has saved this step, or this is an error.
  void save_last();
  void finish();

  const Config& config_;
  const ProcessGrid& grid_;
  Communicator& world_;
  Datasets& datasets_;
  std::span<const TrainingTask> tasks_;
  Log& log_;
  StopSignals& signals_;
  RunLock* lock_;
  RunLimits limits_;                          // rank 0's alone are asked
  std::string stop_for_;                      // what rank 0 stops for, signals apart
  bool stopping_ = false;                     // agreed on by all ranks
  int stop_signal_ = 0;                       // the same: a signal that some rank has received; 0: none
  std::vector<std::string> evaluations_due_;  // in checkpoints, so that stopping in an evaluation loses none
  PassProgress passes_;                       // for the trainer's timers, which it must outlive
  Trainer trainer_;
  SkippedStepPolicy skips_;
  MetricsWriter metrics_;
  Progress progress_;
  LossPlot plot_;
  RunSaves saves_;
  std::int64_t checked_step_ = -1;
  Interval since_metrics_, since_progress_;  // the steps since the last line of each
  bool progress_begun_ = false;              // by this process, whose first step has a line in any case
  RunWatch watch_;                           // the last: its thread uses others
};

/// Whether the run of this checkpoint was stopped before the evaluations of its last step were done.
bool evaluations_due(const CheckpointReader& checkpoint);

}  // namespace megatron
