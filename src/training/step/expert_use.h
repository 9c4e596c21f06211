// ExpertUse: what the routers of a model chose in one step or in several, over all samples. Integers and a minimum: the
// same numbers on every layout.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace megatron {

struct ExpertUse {
  std::int64_t experts = 0;     ///< in a layer; 0: the model has none
  std::int64_t steps = 0;       ///< that these numbers cover
  std::vector<double> choices;  ///< [layers with experts, experts + 1]: of each expert, and how many were dropped
  double least_gap = std::numeric_limits<double>::infinity();  ///< among the choices that this rank made

  ExpertUse() = default;
  /// The use in one step; `choices` are a whole model's.
  ExpertUse(std::int64_t experts_, std::span<const double> choices_, double least_gap_);

  std::int64_t layers() const;
  /// Share of a layer's choices that each of its experts has; zeros without choices.
  std::vector<double> shares(std::int64_t layer) const;
  double dropped() const;  ///< share of all choices that found no place
  void add(const ExpertUse& other);

 private:
  std::span<const double> row(std::int64_t layer) const;
};

}  // namespace megatron
