#include "training/step/interval.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text/foreign_json.h"

namespace megatron {

void Interval::Mean::add(double value, double weight) {
  count += weight;
  if (count == 0) {  // no targets: the value to show until a step has some
    mean = value;
    return;
  }
  if (count == weight) mean = 0;
  // In this form the mean of one step is that step's loss to the last bit.
  mean += (value - mean) * (weight / count);
}

double Interval::Mean::value() const {
  return count > 0 || mean != 0 ? mean : std::nan("");
}

void Interval::add(const StepResult& step, double seconds, const FlopsPerToken& flops) {
  const std::size_t terms = step.loss_counts.size();
  terms_.resize(terms > 1 ? terms : 0);  // a checkpoint may have had others
  if (std::isfinite(step.loss)) {
    loss_.add(step.loss, step.loss_counts[0]);
    for (std::size_t i = 0; i < terms_.size(); ++i) terms_[i].add(step.loss_terms[i], step.loss_counts[i]);
  }
  const auto tokens = static_cast<double>(step.batch.tokens());
  seconds_ += seconds;
  tokens_ += tokens;
  flops_.model += flops.model * tokens;
  flops_.hardware += flops.hardware * tokens;
  ++steps_;
}

std::vector<double> Interval::loss_terms() const {
  if (terms_.empty()) return {loss()};
  std::vector<double> means;
  for (const Mean& term : terms_) means.push_back(term.value());
  return means;
}

nlohmann::json Interval::state_of(const Mean& mean) {
  return {{"mean", mean.mean}, {"count", mean.count}};
}

Interval::Mean Interval::mean_of(const nlohmann::json& state) {
  const double mean = number_at(state, "mean"), count = number_at(state, "count");
  verify(count >= 0, ErrorKind::checkpoint, "a mean loss over {} targets", count);
  return {mean, count};
}

nlohmann::json Interval::loss_state() const {
  nlohmann::json state = state_of(loss_);
  for (const Mean& term : terms_) state["terms"].push_back(state_of(term));
  return state;
}

void Interval::set_loss_state(const nlohmann::json& state) {
  const Mean loss = mean_of(state);
  std::vector<Mean> terms;
  if (state.contains("terms")) {
    verify(state["terms"].is_array(), ErrorKind::checkpoint, "the mean losses by term are no list");
    for (const nlohmann::json& term : state["terms"]) {
      verify(term.is_object(), ErrorKind::checkpoint, "the mean loss of a term is no object");
      terms.push_back(mean_of(term));
    }
  }
  loss_ = loss;
  terms_ = std::move(terms);
}

}  // namespace megatron
