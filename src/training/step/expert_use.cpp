#include "training/step/expert_use.h"

#include <algorithm>
#include <numeric>

#include "base/core/error.h"

namespace megatron {

ExpertUse::ExpertUse(std::int64_t experts_, std::span<const double> choices_, double least_gap_)
    : experts(experts_), steps(1), choices(choices_.begin(), choices_.end()), least_gap(least_gap_) {}

std::int64_t ExpertUse::layers() const {
  return experts == 0 ? 0 : static_cast<std::int64_t>(choices.size()) / (experts + 1);
}

std::span<const double> ExpertUse::row(std::int64_t layer) const {
  return std::span(choices).subspan(static_cast<std::size_t>(layer * (experts + 1)), static_cast<std::size_t>(experts));
}

std::vector<double> ExpertUse::shares(std::int64_t layer) const {
  const std::span<const double> of_layer = row(layer);
  std::vector<double> shares(of_layer.begin(), of_layer.end());
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share = all > 0 ? share / all : 0;
  return shares;
}

double ExpertUse::dropped() const {
  double all = 0, dropped = 0;
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    const std::span<const double> of_layer = row(layer);
    all = std::accumulate(of_layer.begin(), of_layer.end(), all);
    dropped += choices[static_cast<std::size_t>((layer + 1) * (experts + 1) - 1)];
  }
  return all > 0 ? dropped / all : 0;
}

void ExpertUse::add(const ExpertUse& other) {
  if (steps == 0) {
    *this = other;
    return;
  }
  internal_check(choices.size() == other.choices.size(), "experts of another model", choices.size(),
                 other.choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i] += other.choices[i];
  least_gap = std::min(least_gap, other.least_gap);
  steps += other.steps;
}

}  // namespace megatron
