#include "training/diagnostics/parity_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace megatron {

namespace {

constexpr std::size_t kRowsShown = 5;
constexpr double kRoundingMargin = 4, kPrecisionMargin = 2;

double relative(const ComparedNumber& number) {
  if (!std::isfinite(number.here) || !std::isfinite(number.reference)) return kInfiniteDifference;
  return number.here == number.reference ? 0 : std::abs(number.here - number.reference) / std::abs(number.reference);
}

double largest_relative(const std::vector<TensorDeviation>& differences) {
  double largest = 0;
  for (const TensorDeviation& difference : differences) largest = std::max(largest, difference.relative);
  return largest;
}

// Raises what each step's loss and gradients may differ by to `margin` times what they have moved.
void raise(std::vector<std::vector<double>>& numbers, const std::vector<StepComparison>& moved, double margin) {
  const auto raise_one = [margin](double& number, double distance) {
    if (std::isfinite(distance)) number = std::max(number, margin * distance);
  };
  for (std::size_t step = 0; step < moved.size(); ++step) {
    raise_one(numbers[step][0], std::abs(moved[step].loss.here - moved[step].loss.reference));
    for (std::size_t t = 0; t < moved[step].gradients.size(); ++t) {
      raise_one(numbers[step][1 + t], moved[step].gradients[t].distance);
    }
  }
}

std::string number_failure(const char* what, std::size_t step, const ComparedNumber& number, double allowed) {
  return fmt::format("the {} of step {} is {:.9g} instead of {:.9g} (off by {:.1e}; allowed {:.0e})", what, step + 1,
                     number.here, number.reference, relative(number), allowed);
}

}  // namespace

ParityReport::ParityReport(RunComparison comparison, Tolerance tolerance)
    : comparison_(std::move(comparison)), tolerance_(tolerance), update_rounding_(comparison_.parameters.size()) {
  for (const StepComparison& step : comparison_.steps) rounding_.emplace_back(1 + step.gradients.size());
  precision_ = rounding_;
}

void ParityReport::allow_rounding(const std::vector<StepComparison>& rounding, double times) {
  raise(rounding_, rounding, kRoundingMargin / times);
}

void ParityReport::allow_precision(const std::vector<StepComparison>& precision) {
  raise(precision_, precision, kPrecisionMargin);
}

void ParityReport::allow_update_rounding(const std::vector<TensorDeviation>& parameters) {
  const std::vector<TensorDeviation>& gradients = comparison_.steps.front().gradients;
  for (std::size_t t = 0; t < std::min(parameters.size(), update_rounding_.size()); ++t) {
    const TensorDeviation& moved = parameters[t];
    const bool has_gradient = std::any_of(gradients.begin(), gradients.end(),
                                          [&](const TensorDeviation& gradient) { return gradient.name == moved.name; });
    if (!has_gradient && std::isfinite(moved.distance)) {
      update_rounding_[t] = std::max(update_rounding_[t], moved.distance);
    }
  }
}

double ParityReport::scale_of(std::size_t step, std::size_t number) const {
  const StepComparison& at = comparison_.steps[step];
  return number == 0 ? std::abs(at.loss.reference) : at.gradients[number - 1].scale;
}

double ParityReport::allowed(std::size_t step, std::size_t number) const {
  const double scale = scale_of(step, number);
  double most = rounding_[step][number];
  if (!(scale > 0)) return most;
  for (std::size_t other = 0; other < rounding_.size(); ++other) {
    // Another step's counts as it is or relative to its number, whichever is less: a gradient that is nothing but
    // rounding there says nothing about one that is more here.
    const double known = std::max(rounding_[other][number], precision_[other][number]);
    const double share = std::min(known / scale_of(other, number), kMostElsewhere);
    most = std::max(most, std::min(known, share * scale));
  }
  return most;
}

bool ParityReport::loss_beyond(std::size_t step) const {
  const ComparedNumber& loss = comparison_.steps[step].loss;
  const double most = std::max(tolerance_.loss * std::abs(loss.reference), allowed(step, 0));
  return !(std::abs(loss.here - loss.reference) <= most);  // a loss that is not finite as well
}

bool ParityReport::gradient_beyond(std::size_t step, std::size_t tensor) const {
  const TensorDeviation& difference = comparison_.steps[step].gradients[tensor];
  return difference.relative > tolerance_.gradient && difference.distance > allowed(step, 1 + tensor);
}

std::vector<std::size_t> ParityReport::gradients_beyond(std::size_t step) const {
  std::vector<std::size_t> beyond;
  for (std::size_t t = 0; t < comparison_.steps[step].gradients.size(); ++t) {
    if (gradient_beyond(step, t)) beyond.push_back(t);
  }
  return beyond;
}

std::size_t ParityReport::first_step_beyond() const {
  for (std::size_t step = 0; step < comparison_.steps.size(); ++step) {
    if (loss_beyond(step) || !gradients_beyond(step).empty()) return step + 1;
  }
  return 0;
}

bool ParityReport::parameter_beyond(std::size_t tensor) const {
  const TensorDeviation& difference = comparison_.parameters[tensor];
  return difference.relative > kUpdateTolerance && difference.distance > update_rounding_[tensor];
}

std::size_t ParityReport::steps_to_explain() const {
  if (const std::size_t first = first_step_beyond(); first > 0) return first;
  for (std::size_t t = 0; t < comparison_.parameters.size(); ++t) {
    if (parameter_beyond(t)) return comparison_.steps.size();
  }
  return 0;
}

std::string ParityReport::tables() const {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "  {:>4} {:>12} {:>12} {:>10}   {:>13} {:>12} {:>10}   {}\n", "step", "loss", "reference",
                 "difference", "gradient norm", "reference", "difference", "gradients");
  for (std::size_t i = 0; i < comparison_.steps.size(); ++i) {
    const auto& [loss, norm, gradients, gap] = comparison_.steps[i];
    fmt::format_to(out, "  {:>4} {:>12.7f} {:>12.7f} {:>10.1e}   {:>13.6g} {:>12.6g} {:>10.1e}   {:>9.1e}\n", i + 1,
                   loss.here, loss.reference, relative(loss), norm.here, norm.reference, relative(norm),
                   largest_relative(gradients));
  }
  const std::size_t shown = std::max<std::size_t>(first_step_beyond(), 1);
  std::vector<TensorDeviation> worst = comparison_.steps[shown - 1].gradients;
  const std::size_t count = worst.size();
  std::stable_sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.relative > b.relative; });
  if (worst.size() > kRowsShown) worst.resize(kRowsShown);
  fmt::format_to(out, "  gradients of step {}, the {} of {} that differ most:\n", shown, worst.size(), count);
  fmt::format_to(out, "  {:>10} {:>12} {:>5}   {}", "difference", "relative to", "rank", "parameter");
  for (const TensorDeviation& row : worst) {
    fmt::format_to(out, "\n  {:>10.1e} {:>12.6g} {:>5}   {}", row.relative, row.scale, row.rank, row.name);
  }
  return text;
}

std::string ParityReport::gradient_failure(std::size_t step) const {
  const std::vector<TensorDeviation>& gradients = comparison_.steps[step].gradients;
  const std::vector<std::size_t> beyond = gradients_beyond(step);
  const TensorDeviation& last = gradients[beyond.back()];  // the nearest to the loss
  const std::string text = fmt::format("{} of {} gradients of step {} are off by more than {:.0e}", beyond.size(),
                                       gradients.size(), step + 1, tolerance_.gradient);
  if (beyond.size() == 1) {
    return fmt::format("{}: the only one is {}, by {:.1e}, most of it on rank {}", text, last.name, last.relative,
                       last.rank);
  }
  return fmt::format(
      "{}: backward from the loss, the first that is off is {}, by {:.1e}, most of it on rank {}, and errors travel "
      "from there to the layers before it",
      text, last.name, last.relative, last.rank);
}

ComparedNumber ParityReport::least_gap(std::size_t steps) const {
  ComparedNumber least{kInfiniteDifference, kInfiniteDifference};
  for (std::size_t step = 0; step < steps; ++step) {
    const ComparedNumber& gap = comparison_.steps[step].gap;
    least = {std::min(least.here, gap.here), std::min(least.reference, gap.reference)};
  }
  return least;
}

// Once a token goes to another expert, all that follows it differs too, the choice bias included.
std::string ParityReport::gap_hint() const {
  const std::size_t first = first_step_beyond(), steps = first > 0 ? first : comparison_.steps.size();
  const ComparedNumber gap = least_gap(steps);
  if (std::min(gap.here, gap.reference) >= tolerance_.gap) return {};
  return fmt::format(
      "this may be one token that went to another expert: the smallest router gap up to step {} is {:.1e} here and "
      "{:.1e} on one rank, and below {:.0e} rounding decides (docs/mixture_of_experts.md); verify with another "
      "train.seed, or with moe.top_k = moe.experts, to tell",
      steps, gap.here, gap.reference, tolerance_.gap);
}

std::string ParityReport::failure() const {
  std::vector<std::string> parts;
  const std::vector<StepComparison>& steps = comparison_.steps;
  const std::size_t first = first_step_beyond();
  if (first > 0 && loss_beyond(first - 1)) {
    parts.push_back(number_failure("loss", first - 1, steps[first - 1].loss, tolerance_.loss));
    parts.push_back(first == 1 ? "so the forward pass is already another one"
                               : "though the steps before it were right: look at what their updates left behind");
  }
  if (first > 0 && !gradients_beyond(first - 1).empty()) parts.push_back(gradient_failure(first - 1));
  for (std::size_t step = 0; step < steps.size(); ++step) {
    if (relative(steps[step].norm) <= kNormTolerance) continue;
    parts.push_back(number_failure("gradient norm", step, steps[step].norm, kNormTolerance));
    break;
  }
  std::size_t updated_otherwise = 0;
  const TensorDeviation* worst = nullptr;
  for (std::size_t t = 0; t < comparison_.parameters.size(); ++t) {
    if (!parameter_beyond(t)) continue;
    const TensorDeviation& parameter = comparison_.parameters[t];
    ++updated_otherwise;
    if (worst == nullptr || parameter.relative > worst->relative) worst = &parameter;
  }
  if (worst != nullptr) {
    parts.push_back(
        fmt::format("from the same gradients {} of {} parameters are updated otherwise, {} by {:.1e} of its way, most "
                    "of it on rank {}",
                    updated_otherwise, comparison_.parameters.size(), worst->name, worst->relative, worst->rank));
  }
  if (const std::string hint = gap_hint(); !parts.empty() && !hint.empty()) parts.push_back(hint);
  if (!comparison_.copies.empty()) parts.push_back(comparison_.copies);
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string ParityReport::summary() const {
  double loss = 0, norm = 0, gradient = 0;
  std::size_t rounding_losses = 0, rounding_gradients = 0, gradients = 0;
  for (std::size_t step = 0; step < comparison_.steps.size(); ++step) {
    const StepComparison& at = comparison_.steps[step];
    norm = std::max(norm, relative(at.norm));
    if (relative(at.loss) <= tolerance_.loss) {
      loss = std::max(loss, relative(at.loss));
    } else {
      ++rounding_losses;
    }
    for (const TensorDeviation& difference : at.gradients) {
      ++gradients;
      if (difference.relative <= tolerance_.gradient) {
        gradient = std::max(gradient, difference.relative);
      } else {
        ++rounding_gradients;
      }
    }
  }
  std::string text = fmt::format(
      "loss within {:.1e} ({:.0e} allowed), gradient norm {:.1e} ({:.0e}), {} gradients {:.1e} ({:.0e}), updates "
      "{:.1e} "
      "({:.0e})",
      loss, tolerance_.loss, norm, kNormTolerance, gradients, gradient, tolerance_.gradient,
      largest_relative(comparison_.parameters), kUpdateTolerance);
  if (rounding_losses + rounding_gradients > 0) {
    fmt::format_to(std::back_inserter(text), "; {} losses and {} gradients more, no further than rounding moves them",
                   rounding_losses, rounding_gradients);
  }
  const ComparedNumber gap = least_gap(comparison_.steps.size());
  if (std::isfinite(gap.reference)) {
    fmt::format_to(std::back_inserter(text), "; smallest router gap {:.1e}, on one rank {:.1e}", gap.here,
                   gap.reference);
  }
  return text;
}

}  // namespace megatron
