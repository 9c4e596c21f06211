#include "train/layout_verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace megatron {

namespace {

constexpr std::size_t kRowsShown = 5;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative(double value, double reference) {
  if (!std::isfinite(value) || !std::isfinite(reference)) return kInfinity;
  return value == reference ? 0 : std::abs(value - reference) / std::abs(reference);
}

double largest(const std::vector<double>& values, const std::vector<double>& reference) {
  double result = 0;
  for (std::size_t i = 0; i < values.size(); ++i) result = std::max(result, relative(values[i], reference[i]));
  return result;
}

/// The first step (from 1) that is beyond what is allowed; 0: none.
std::size_t first_beyond(const std::vector<double>& values, const std::vector<double>& reference, double allowed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (relative(values[i], reference[i]) > allowed) return i + 1;
  }
  return 0;
}

std::string step_beyond(const char* what, std::size_t step, const std::vector<double>& values,
                        const std::vector<double>& reference, double allowed) {
  const double value = values[step - 1], expected = reference[step - 1];
  return fmt::format("the {} of step {} is {:.9g} instead of {:.9g} (off by {:.1e}; allowed {:.0e})", what, step, value,
                     expected, relative(value, expected), allowed);
}

}  // namespace

LayoutVerdict::LayoutVerdict(StepNumbers here, StepNumbers reference, std::vector<GradientDifference> gradients,
                             Promise promise)
    : here_(std::move(here)), reference_(std::move(reference)), gradients_(std::move(gradients)), promise_(promise) {}

std::string LayoutVerdict::tables() const {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "  {:>4} {:>12} {:>12} {:>10}   {:>13} {:>12} {:>10}\n", "step", "loss", "one rank", "difference",
                 "gradient norm", "one rank", "difference");
  for (std::size_t i = 0; i < reference_.losses.size(); ++i) {
    const double loss = here_.losses[i], norm = here_.norms[i];
    fmt::format_to(out, "  {:>4} {:>12.7f} {:>12.7f} {:>10.1e}   {:>13.6g} {:>12.6g} {:>10.1e}\n", i + 1, loss,
                   reference_.losses[i], relative(loss, reference_.losses[i]), norm, reference_.norms[i],
                   relative(norm, reference_.norms[i]));
  }
  std::vector<GradientDifference> worst = gradients_;
  std::stable_sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.relative > b.relative; });
  if (worst.size() > kRowsShown) worst.resize(kRowsShown);
  fmt::format_to(out, "  gradients of step 1, the {} of {} that differ most:\n", worst.size(), gradients_.size());
  fmt::format_to(out, "  {:>10} {:>12} {:>5}   {}", "difference", "its norm", "rank", "parameter");
  for (const GradientDifference& row : worst) {
    fmt::format_to(out, "\n  {:>10.1e} {:>12.6g} {:>5}   {}", row.relative, row.norm, row.rank, row.name);
  }
  return text;
}

std::string LayoutVerdict::failure() const {
  const std::size_t loss = first_beyond(here_.losses, reference_.losses, promise_.loss);
  const std::size_t norm = first_beyond(here_.norms, reference_.norms, promise_.norm);
  std::size_t beyond = 0;
  const GradientDifference* last = nullptr;  // the nearest to the loss
  for (const GradientDifference& difference : gradients_) {
    if (difference.relative <= promise_.gradient) continue;
    ++beyond;
    last = &difference;
  }
  std::vector<std::string> parts, hints;
  if (loss > 0) parts.push_back(step_beyond("loss", loss, here_.losses, reference_.losses, promise_.loss));
  if (norm > 0) parts.push_back(step_beyond("gradient norm", norm, here_.norms, reference_.norms, promise_.norm));
  if (beyond > 0) {
    parts.push_back(fmt::format("{} of {} gradients of step 1 are off by more than {:.0e}", beyond, gradients_.size(),
                                promise_.gradient));
  }
  if (parts.empty()) return "";
  if (loss == 1) hints.push_back("the forward pass of step 1 is another one already");
  if (loss != 1 && beyond == 0) {
    hints.push_back("the gradients of step 1 are right: look at what comes after them, the norm and the update");
  }
  if (beyond == 1) {
    hints.push_back(
        fmt::format("the only one is {}, by {:.1e}, most of it on rank {}", last->name, last->relative, last->rank));
  } else if (beyond > 1) {
    hints.push_back(
        fmt::format("backward from the loss, the first that is off is {}, by {:.1e}, most of it on rank {}: errors "
                    "travel from there to the layers before it",
                    last->name, last->relative, last->rank));
  }
  return fmt::format("{}; {}", fmt::join(parts, ", "), fmt::join(hints, "; "));
}

std::string LayoutVerdict::summary() const {
  double gradient = 0;
  for (const GradientDifference& difference : gradients_) gradient = std::max(gradient, difference.relative);
  return fmt::format("loss within {:.1e} ({:.0e} allowed), gradient norm {:.1e} ({:.0e}), {} gradients {:.1e} ({:.0e})",
                     largest(here_.losses, reference_.losses), promise_.loss, largest(here_.norms, reference_.norms),
                     promise_.norm, gradients_.size(), gradient, promise_.gradient);
}

}  // namespace megatron
