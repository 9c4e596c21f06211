// The report on a comparison of two runs of the same steps, such as a layout's and one rank's: the tables that people
// read, and what differs by more than it may, with a hint where to look. Knows numbers and names: no ranks, no devices.
//
// A difference may be as large as a fixed tolerance says. Where it is larger, the report has to know how far rounding
// moves the reference: gradients that are zero but for rounding, or the kink of a ReLU, leave rounding errors of any
// relative size, which no fixed tolerance can tell from a defect.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "training/diagnostics/tensor_comparison.h"

namespace megatron {

/// Allowed differences, relative to the reference. A router gap below `gap` may close by rounding: then a token goes to
/// another expert, and differences have no bound.
struct Tolerance {
  double loss, gradient, gap;
};
inline constexpr Tolerance kRounding{1e-5, 5e-5, 1e-6};        ///< fp32
inline constexpr Tolerance kMixedPrecision{5e-3, 5e-2, 1e-2};  ///< 16 bits
/// Tolerances of norms and updates in any precision: both are made of the reference's gradients, in fp32.
inline constexpr double kNormTolerance = 1e-5, kUpdateTolerance = 1e-4;
/// Differences measured in other steps allow no more than this share of a number: a sum that is left out is more.
inline constexpr double kMostElsewhere = 0.4;

struct ComparedNumber {
  double here = 0, reference = 0;
};

struct StepComparison {
  ComparedNumber loss, norm;
  std::vector<TensorDeviation> gradients;  ///< in the order of the model
  /// The least router gap; infinite in a model without experts.
  ComparedNumber gap = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
};

struct RunComparison {
  std::vector<StepComparison> steps;
  std::vector<TensorDeviation> parameters;  ///< after the last step, relative to how far they have moved
  std::string copies;                       ///< copies of parameters that differ, in words; empty: none
};

class ParityReport {
 public:
  ParityReport(RunComparison comparison, Tolerance tolerance);

  /// `rounding`: the reference's first steps, run by one rank with other rounding errors, compared with themselves.
  /// Losses and gradients may then differ by up to four times the most that this or an earlier such run has moved
  /// them. What it has moved in one step also counts in the others, within kMostElsewhere: a kink that falls the same
  /// way in all runs of this step falls the other way in those of another.
  /// `times`: factor by which the run's rounding errors exceed the usual ones, up to four, and its margin is as much
  /// smaller. What grows with rounding is allowed as much by either; kinks that are within four roundings fall in such
  /// a run alone.
  void allow_rounding(const std::vector<StepComparison>& rounding, double times = 1);
  /// `precision`: the reference's steps compared with fp32. The layout may be as far from fp32 on the other side, so
  /// twice as far from the reference, within kMostElsewhere.
  void allow_precision(const std::vector<StepComparison>& precision);

  /// `parameters`: those of such a run after all steps. Those without a gradient, a router's choice bias, which moves
  /// by whole steps, may then be as far from the reference as this or an earlier run has moved them. All others are
  /// updated by the reference's gradients, so that rounding excuses nothing.
  void allow_update_rounding(const std::vector<TensorDeviation>& parameters);

  /// The first step (from 1) whose loss or gradients differ by more than they may; 0: none does.
  std::size_t first_step_beyond() const;
  /// As many steps as another run needs to show whether rounding explains what differs: up to the first beyond, all
  /// where only parameters are; 0: nothing is.
  std::size_t steps_to_explain() const;
  /// Losses and norms of all steps, and the gradients that differ most.
  std::string tables() const;
  /// Names what differs by more than it may, and where to look first; empty: nothing does.
  std::string failure() const;
  /// "loss within 2.1e-09 (1e-05 allowed), gradient norm ...": the largest differences.
  std::string summary() const;

 private:
  /// Numbers of a step: its loss, then its gradients.
  using Numbers = std::vector<double>;

  double scale_of(std::size_t step, std::size_t number) const;
  double allowed(std::size_t step, std::size_t number) const;
  bool loss_beyond(std::size_t step) const;
  bool gradient_beyond(std::size_t step, std::size_t tensor) const;
  bool parameter_beyond(std::size_t tensor) const;
  std::vector<std::size_t> gradients_beyond(std::size_t step) const;
  std::string gradient_failure(std::size_t step) const;
  /// The least of the first `steps` steps.
  ComparedNumber least_gap(std::size_t steps) const;
  std::string gap_hint() const;

  RunComparison comparison_;
  Tolerance tolerance_;
  // By step: how far runs of this step allow its numbers to differ, and what else is known of them.
  std::vector<Numbers> rounding_, precision_;
  Numbers update_rounding_;  ///< by parameter
};

}  // namespace megatron
