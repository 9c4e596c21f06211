// What a comparison of a layout with one rank comes to: the tables that people read, and what is beyond the promises of
// the program, with a hint where to look. Pure text and arithmetic: no ranks, no devices.
#pragma once

#include <string>
#include <vector>

#include "train/gradient_comparison.h"

namespace megatron {

/// By step.
struct StepNumbers {
  std::vector<double> losses, norms;
};

/// What may differ, relative to the reference.
struct Promise {
  double loss, norm, gradient;
};
inline constexpr Promise kRounding{1e-5, 1e-5, 5e-5};  ///< fp32
inline constexpr Promise kBand{5e-3, 5e-2, 5e-2};      ///< 16 bits against fp32

class LayoutVerdict {
 public:
  /// `gradients` of the first step, in the order of the model.
  LayoutVerdict(StepNumbers here, StepNumbers reference, std::vector<GradientDifference> gradients, Promise promise);

  /// Losses and norms of all steps, and the gradients that differ most.
  std::string tables() const;
  /// What is beyond the promise, and where to look first; empty: nothing is.
  std::string failure() const;
  /// "loss within 2.1e-09 (1e-05 allowed), gradient norm ...": the largest differences.
  std::string summary() const;

 private:
  StepNumbers here_, reference_;
  std::vector<GradientDifference> gradients_;
  Promise promise_;
};

}  // namespace megatron
