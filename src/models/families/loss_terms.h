// A model's loss as a list of named terms, each a mean: of its targets, or of another number per sample. A family's row
// lists them (family.h), layers add sums to them on any stage (models/layers/context.h), metrics print them by name.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace megatron {

struct LossTerm {
  std::string name;        ///< in metrics
  double coefficient = 1;  ///< the mean's, in the loss that is minimised
  double per_sample =
      0;  ///< added to the count by each sample; 0: the samples themselves say it (data/samples/samples.h)
};

/// A model has at least one. The first is the one that a perplexity is made of.
using LossTerms = std::vector<LossTerm>;

/// How the sums of one step's terms become its loss.
struct LossScaling {
  std::span<const double> counts;  ///< by term, of the global batch: each mean is the sum over this
  double scale = 1;                ///< the loss scale: what is differentiated is the loss times this
};

/// By term the mean, and the loss that they make: the sum of coefficient · mean. The terms are views.
struct Losses {
  double total = 0;
  std::span<const double> terms;
};

using NamedLosses = std::vector<std::pair<std::string, double>>;

/// Each mean under its term's name.
inline NamedLosses named_losses(std::span<const LossTerm> terms, std::span<const double> means) {
  NamedLosses losses;
  for (std::size_t i = 0; i < terms.size(); ++i) losses.emplace_back(terms[i].name, means[i]);
  return losses;
}

/// Sum of coefficient · mean.
inline double total_loss(std::span<const LossTerm> terms, std::span<const double> means) {
  double total = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) total += terms[i].coefficient * means[i];
  return total;
}

}  // namespace megatron
