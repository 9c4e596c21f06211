// TrainingLoop: decides when to evaluate, save and stop, and keeps the run's files: metrics, progress lines, plot, the
// end table. The work itself is Trainer's. Every function is collective over the grid.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/system/log.h"
#include "distributed/process/run_limits.h"
#include "distributed/process/run_lock.h"
#include "distributed/process/stop_signals.h"
#include "monitoring/metrics/run_watch.h"
#include "training/datasets/evaluation_tasks.h"
#include "training/loop/run_evaluations.h"
#include "training/loop/run_outputs.h"
#include "training/loop/run_saves.h"
#include "training/loop/skipped_step_policy.h"
#include "training/loop/step_trace.h"
#include "training/step/interval.h"
#include "training/step/trainer.h"

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
  /// After load(): the metrics of an earlier program are cut back to this step.
  void continue_metrics();

  /// Trains to the end or to train.stop_after and returns 0; or until a stop signal, a time limit or the stop file ends
  /// it, and returns kExitStoppedEarly with a good checkpoint.
  int run();

 private:
  /// Key of the loss since the last line of the metrics, so that the next line is the same after a resume.
  static constexpr const char* kLossSinceLine = "loss_since_line";
  enum class Request { none = 0, save = 1, stop = 2 };
  bool save_is_due() const;  ///< since the last one is too long ago
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
  StepResult traced_step();  ///< named for profilers
  /// Unless this step has been checked already.
  void check_replicas();
  /// Whether the step that is done has a line in the metrics.
  bool metrics_are_due() const;
  bool ends_interval(std::int64_t every) const;
  void record(const StepResult& result, double seconds);
  void write_metrics(const StepResult& result);
  void print_progress(const StepResult& result);
  SavePoint here() const;
  /// Saves this step, or begins to, unless it has been saved already.
  void save();
  bool has_new_best() const;
  /// For the end of the program: it has saved this step, or this is an error.
  void save_last();
  /// The end of the run's files and lines. `how` it ended, for history.jsonl.
  void finish(const std::string& how);

  const Config& config_;
  const ProcessGrid& grid_;
  Communicator& world_;
  Datasets& datasets_;
  Log& log_;
  StopSignals& signals_;
  RunLock* lock_;
  RunLimits limits_;       // rank 0's alone are asked
  std::string stop_for_;   // rank 0's reason to stop, signals apart
  bool stopping_ = false;  // agreed on by all ranks
  int stop_signal_ = 0;    // the same: a signal that some rank has received; 0: none
  SavedStep saved_step_;
  PassProgress passes_;  // for the trainer's timers, which it must outlive
  StepTrace trace_;      // before the trainer, which refers to the backend's operations
  Trainer trainer_;
  SkippedStepPolicy skips_;
  RunOutputs outputs_;
  RunSaves saves_;
  RunEvaluations evaluations_;
  std::int64_t checked_step_ = -1;
  ExpertUse experts_;                        // over all steps of this process that were not skipped
  Interval since_metrics_, since_progress_;  // the steps since the last line of each
  bool progress_begun_ = false;              // by this process, whose first step has a line in any case
  RunWatch watch_;                           // the last: its thread uses others
};

}  // namespace megatron
