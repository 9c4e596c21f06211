// RunSaves: the checkpoints that a run writes into its directory, at once or in the background: what has been saved,
// what is being written, and what it means when that fails. When a save is due is TrainingLoop's to say.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/core/error.h"
#include "base/system/log.h"
#include "config/schema/config.h"
#include "distributed/process/run_limits.h"
#include "distributed/process/saved_step.h"
#include "monitoring/metrics/loss_plot.h"
#include "training/step/trainer.h"

namespace megatron {

/// A place in a run that it can resume from: after this step, with this number of its evaluations yet to do.
struct SavePoint {
  std::int64_t step = -1;
  std::size_t evaluations_due = 0;
  bool operator==(const SavePoint&) const = default;
};

/// The lowest validation loss of all that a run has evaluated and saved.
struct BestSave {
  std::int64_t step = -1;  ///< none
  double loss = std::numeric_limits<double>::infinity();

  nlohmann::json state() const;  ///< for a checkpoint
  /// Error(checkpoint), or nlohmann's, for what no state() is.
  static BestSave from_state(const nlohmann::json& state);
};

/// Every function that starts or continues a save is collective over all ranks.
class RunSaves {
 public:
  /// All references must outlive it. `limits` is told how long saves take; `plot` is drawn anew with each.
  /// `saved` is told the newest step.
  RunSaves(const Config& config, Communicator& world, Trainer& trainer, RunLimits& limits, LossPlot& plot,
           SavedStep& saved, Log& log);

  /// The run resumed from its own checkpoint of this place.
  void resumed_at(const SavePoint& point) { set_newest(point); }
  bool has(const SavePoint& point) const { return saved_ == point; }
  bool any() const { return saved_.step >= 0; }
  /// False after the newest has been removed from outside. Collective.
  bool newest_is_there();
  /// If it has been, there is none. Collective.
  void look_again();
  std::int64_t newest_step() const { return saved_.step; }
  /// The one that stays whatever checkpoint.keep_last says: after a resume the checkpoint's, unless that is gone.
  const BestSave& best() const { return best_; }
  void resumed_with_best(const BestSave& best);
  double seconds_since_last() const;  ///< by the steady clock; an attempt that failed counts

  /// Whether this place is saved, or is being written: there is nothing to save.
  bool covers(const SavePoint& point) const;
  /// Saves where training is now, which is `point`; `loop` comes back from Trainer::resume(). `async`: only begins to,
  /// if the run writes its checkpoints in the background; advance() does the rest. Waits for what is being written
  /// first, and says so. A save that fails is an error only if this run has no good checkpoint yet; else a warning.
  /// `best`: what best() is once this is saved.
  void save(const SavePoint& point, const nlohmann::json& loop, bool async, SaveOptions options, const BestSave& best);

  bool under_way() const { return writing_.has_value(); }
  bool working() const;  ///< this rank's thread is; not collective
  /// When no rank is working any more: what is under way takes its next step, or is done. Waits for ranks that work.
  void advance();
  /// Until nothing is under way.
  void wait();

 private:
  struct Writing {
    SavePoint point;
    BestSave best;
    double stalled;  ///< seconds that training has waited for it here; steps also wait for its copy
  };

  void set_newest(const SavePoint& point);
  bool is_there(std::int64_t step) const;  ///< as far as this rank can see
  void save_at_once(const SavePoint& point, const nlohmann::json& loop, const SaveOptions& options,
                    const BestSave& best);
  void start(const SavePoint& point, const nlohmann::json& loop, const SaveOptions& options, const BestSave& best);
  void done(const SaveReport& report, const SavePoint& point, const BestSave& best, const std::string& how);
  /// In a handler of what a save threw, on all ranks alike.
  void failed(const Error& error, const SavePoint& point);

  const std::string directory_;
  Communicator& world_;
  Trainer& trainer_;
  RunLimits& limits_;
  LossPlot& plot_;
  SavedStep& told_;
  Log& log_;
  SavePoint saved_;
  BestSave best_;
  std::optional<Writing> writing_;
  double last_;  // by the steady clock
};

}  // namespace megatron
