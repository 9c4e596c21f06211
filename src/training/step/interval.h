// Interval: the steps since the last line of the metrics or of the progress, summed up for the next line.
//
// The loss is the mean over everything that was trained on: each step's loss weighted by its loss count (for
// language_model its targets). Steps whose loss is not finite have no part in it. Counts on the host, with what a step
// returns in any case.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "models/families/flops.h"
#include "training/step/trainer.h"

namespace megatron {

class Interval {
 public:
  /// `flops`: per token of this step.
  void add(const StepResult& step, double seconds, const FlopsPerToken& flops);

  /// The mean loss, for one step exactly that step's; NaN if no step's loss was finite. Where the loss has several
  /// terms, steps weigh by the first one's counts.
  double loss() const { return loss_.value(); }
  /// By term, each weighed by its own counts.
  std::vector<double> loss_terms() const;
  double step_seconds() const { return seconds_ / static_cast<double>(steps_); }  ///< mean
  double tokens_per_second() const { return tokens_ / seconds_; }
  FlopsPerToken flops_per_second() const { return {flops_.model / seconds_, flops_.hardware / seconds_}; }

  /// The part that a resumed run continues with, as checkpoints hold it: an object. Rates begin anew there.
  nlohmann::json loss_state() const;
  /// Errors: checkpoint, for what loss_state() cannot have been.
  void set_loss_state(const nlohmann::json& state);

 private:
  struct Mean {
    double mean = 0, count = 0;
    void add(double value, double weight);
    double value() const;
  };
  static nlohmann::json state_of(const Mean& mean);
  static Mean mean_of(const nlohmann::json& state);

  Mean loss_;
  std::vector<Mean> terms_;  // where there are several
  double seconds_ = 0, tokens_ = 0;
  FlopsPerToken flops_;  // for all tokens together
  std::int64_t steps_ = 0;
};

}  // namespace megatron
