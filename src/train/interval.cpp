#include "train/interval.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"

namespace megatron {

void Interval::add(const StepResult& step, double seconds, const FlopsPerToken& flops) {
  if (std::isfinite(step.loss)) {
    // In this form the mean of one step is that step's loss to the last bit.
    loss_count_ += step.loss_count;
    mean_loss_ += (step.loss - mean_loss_) * (step.loss_count / loss_count_);
  }
  const auto tokens = static_cast<double>(step.batch.tokens());
  seconds_ += seconds;
  tokens_ += tokens;
  flops_.model += flops.model * tokens;
  flops_.hardware += flops.hardware * tokens;
  ++steps_;
}

double Interval::loss() const {
  return loss_count_ > 0 ? mean_loss_ : std::nan("");
}

nlohmann::json Interval::loss_state() const {
  return {{"mean", mean_loss_}, {"count", loss_count_}};
}

void Interval::set_loss_state(const nlohmann::json& state) {
  const double mean = number_at(state, "mean"), count = number_at(state, "count");
  verify(count >= 0, ErrorKind::checkpoint, "a mean loss over {} targets", count);
  mean_loss_ = mean;
  loss_count_ = count;
}

}  // namespace megatron
