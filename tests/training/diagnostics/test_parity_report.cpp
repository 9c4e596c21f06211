// Tests of what a report on two runs says and allows, from given numbers.
#include "support/catch.h"
#include "training/diagnostics/parity_report.h"

#include <cmath>

using namespace megatron;

namespace {

StepComparison step_of(ComparedNumber loss, ComparedNumber norm, std::vector<TensorDeviation> gradients) {
  return {.loss = loss, .norm = norm, .gradients = std::move(gradients)};
}

TensorDeviation off_by(const char* name, double relative, int rank = 0) {
  return {.name = name, .scale = 2, .distance = 2 * relative, .rank = rank, .relative = relative};
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a report says what is off, and where to look") {
  const std::vector<TensorDeviation> right = {off_by("first", 1e-6), off_by("second", 2e-6, 1)};
  const auto report = [&](StepComparison first, StepComparison second, std::vector<TensorDeviation> parameters = {}) {
    ParityReport result({{std::move(first), std::move(second)}, std::move(parameters), ""}, kRounding);
    CHECK(contains(result.tables(), "that differ most"));
    return result;
  };
  const StepComparison good = step_of({4, 4}, {1, 1}, right), close = step_of({4.00002, 4}, {1, 1}, right);
  CHECK(report(good, good).failure().empty());
  CHECK(report(close, good).first_step_beyond() == 0);
  CHECK(report(close, good, {off_by("first", 3e-5)}).summary() ==
        "loss within 5.0e-06 (1e-05 allowed), gradient norm 0.0e+00 (1e-05), 4 gradients 2.0e-06 (5e-05), updates "
        "3.0e-05 (1e-04)");

  std::string text = report(good, step_of({3.1, 3}, {1, 1}, right)).failure();
  CHECK(contains(text, "the loss of step 2 is 3.1 instead of 3"));
  CHECK(contains(text, "look at what their updates left behind"));
  text =
      report(step_of({4.1, 4}, {1, 1}, {off_by("first", 0.1), off_by("second", 0.2, 1), off_by("third", 1e-6)}), good)
          .failure();
  CHECK(contains(text, "the loss of step 1 is 4.1 instead of 4"));
  CHECK(contains(text, "2 of 3 gradients of step 1"));
  CHECK(contains(text, "so the forward pass is already another one"));
  CHECK(contains(text, "the first that is off is second, by 2.0e-01, most of it on rank 1"));
  CHECK(contains(report(good, step_of({4, 4}, {1.1, 1}, right)).failure(), "the gradient norm of step 2 is 1.1"));
  CHECK(contains(report(good, good, {off_by("first", 1e-6), off_by("second", 0.5, 3)}).failure(),
                 "1 of 2 parameters are updated otherwise, second by 5.0e-01 of its way, most of it on rank 3"));
  for (const double other : {4.0, double(NAN)}) {
    CHECK(contains(report(good, step_of({NAN, other}, {1, 1}, right)).failure(), "the loss of step 2 is nan"));
  }
}

TEST_CASE("report: a small router gap explains a difference but a large one not") {
  const std::vector<TensorDeviation> right = {off_by("first", 1e-6)};
  const auto with_gap = [&](double loss, ComparedNumber gap) {
    StepComparison step = step_of({loss, 4}, {1, 1}, right);
    step.gap = gap;
    return step;
  };
  const auto report = [](const StepComparison& first, const StepComparison& second) {
    return ParityReport({{first, second}, {}, ""}, kRounding);
  };
  const StepComparison wide = with_gap(4, {1e-3, 2e-3}), narrow = with_gap(4, {3e-4, 3.5e-8});
  const StepComparison wrong = with_gap(4.1, {5e-4, 5e-4});
  const char* hint = "may be one token that went to another expert";
  CHECK(contains(report(narrow, wrong).failure(), hint));
  CHECK(contains(report(narrow, wrong).failure(),
                 "up to step 2 is 3.0e-04 here and 3.5e-08 on one rank, and below 1e-06"));
  CHECK_FALSE(contains(report(wide, wrong).failure(), hint));
  // Later steps are not the cause of the wrong step, and a step that is right needs no reason.
  CHECK_FALSE(contains(report(wrong, narrow).failure(), hint));
  CHECK(report(wide, narrow).failure().empty());
  CHECK(report(wide, narrow).summary().ends_with("; smallest router gap 3.0e-04, on one rank 3.5e-08"));
  // No gap is as small as that in a model without experts.
  CHECK_FALSE(contains(report(wide, step_of({4, 4}, {1, 1}, right)).summary(), "inf"));
  const StepComparison dense = step_of({4, 4}, {1, 1}, right);
  CHECK_FALSE(contains(report(dense, dense).summary(), "gap"));
}

TEST_CASE("a report allows four times what rounding does, no more") {
  const auto gradients = [](double first, double second) {
    return std::vector<TensorDeviation>{off_by("first", first), off_by("second", second)};
  };
  const StepComparison good = step_of({4, 4}, {1, 1}, gradients(1e-6, 1e-6));
  const StepComparison noisy = step_of({4.01, 4}, {1, 1}, gradients(1e-6, 0.9));
  ParityReport report({{good, noisy}, {}, ""}, kRounding);
  CHECK(report.first_step_beyond() == 2);
  report.allow_rounding({good});
  CHECK(report.first_step_beyond() == 2);
  report.allow_rounding({good, step_of({3.997, 4}, {1, 1}, gradients(0.9, 0.2))});
  CHECK(contains(report.failure(), "1 of 2 gradients of step 2"));
  report.allow_rounding({good, step_of({4, 4}, {1, 1}, gradients(0, 0.3))});
  CHECK(report.failure().empty());
  CHECK(contains(report.summary(), "; 1 losses and 1 gradients more, no further than rounding moves them"));
  // A difference that rounding of four times the size makes is allowed once.
  for (const double distance : {0.85, 0.95}) {
    ParityReport larger({{good, noisy}, {}, ""}, kRounding);
    larger.allow_rounding({good, step_of({4.01, 4}, {1, 1}, gradients(0, distance))}, 4);
    CHECK(larger.failure().empty() == (distance > 0.9));
  }
  // Rounding that is not finite explains nothing.
  ParityReport infinite({{step_of({NAN, 4}, {1, 1}, gradients(INFINITY, 0))}, {}, ""}, kRounding);
  infinite.allow_rounding({step_of({INFINITY, 4}, {1, 1}, gradients(INFINITY, 0))});
  CHECK(contains(infinite.failure(), "the loss of step 1 is nan"));
  CHECK(contains(infinite.failure(), "the only one is first, by inf"));
}

TEST_CASE("report: allows effects of rounding and of 16 bits within bounds") {
  const auto step = [](TensorDeviation gradient) { return step_of({4, 4}, {1, 1}, {std::move(gradient)}); };
  const StepComparison good = step(off_by("up", 7e-3)), flipped = step(off_by("up", 9.6e-2));
  const auto report = [](const std::vector<StepComparison>& steps) {
    return ParityReport({steps, {}, ""}, kMixedPrecision);
  };

  // A kink that all runs of the third step let fall the same way. In the second it fell both ways.
  ParityReport kink = report({good, good, flipped});
  kink.allow_rounding({good, good, step(off_by("up", 1.3e-2))});
  CHECK(kink.first_step_beyond() == 3);
  kink.allow_rounding({good, step(off_by("up", 3e-2))});
  CHECK(kink.failure().empty());

  // No more than a share of a gradient: half of it is missing.
  ParityReport half = report({good, step(off_by("up", 0.5))});
  half.allow_rounding({step(off_by("up", 0.9)), good});
  half.allow_precision({step(off_by("up", 0.9)), step(off_by("up", 0.9))});
  CHECK(half.first_step_beyond() == 2);
  half.allow_rounding({good, step(off_by("up", 0.2))});  // as measured in the step itself
  CHECK(half.failure().empty());

  // Where a gradient is nothing but rounding, that is as little as it is; where it is large, the share counts.
  for (const TensorDeviation& other :
       {TensorDeviation{.name = "up", .scale = 1e-6, .distance = 1e-6, .rank = 0, .relative = 1},
        TensorDeviation{.name = "up", .scale = 1e6, .distance = 1, .rank = 0, .relative = 1e-6}}) {
    ParityReport other_sizes = report({step(other), flipped});
    other_sizes.allow_rounding({step(other), good});
    other_sizes.allow_precision({step(other), good});
    CHECK(other_sizes.first_step_beyond() == 2);
  }

  // The layout lies on the other side of fp32.
  ParityReport other_side = report({flipped});
  other_side.allow_precision({step(off_by("up", 4.7e-2))});
  CHECK(other_side.first_step_beyond() == 1);
  other_side.allow_precision({step(off_by("up", 4.9e-2))});
  CHECK(other_side.failure().empty());
  ParityReport loss = report({step_of({4.3, 4}, {1, 1}, {})});
  loss.allow_precision({step_of({3.8, 4}, {1, 1}, {})});
  CHECK(loss.failure().empty());
}

TEST_CASE("a report: rounding excuses a choice bias, and no weight") {
  const StepComparison good = step_of({4, 4}, {1, 1}, {off_by("weight", 0)});
  const auto report_of = [&](double weight, double bias) {
    return ParityReport({{good, good}, {off_by("weight", weight), off_by("router.choice_bias", bias)}, ""}, kRounding);
  };
  ParityReport report = report_of(0, 0.5);
  CHECK(report.first_step_beyond() == 0);
  CHECK(report.steps_to_explain() == 2);
  CHECK(contains(report.failure(), "1 of 2 parameters are updated otherwise, router.choice_bias by 5.0e-01"));
  report.allow_update_rounding({off_by("weight", 0.6), off_by("router.choice_bias", 0.4)});
  CHECK(report.steps_to_explain() == 2);
  report.allow_update_rounding({});  // a run of fewer steps compares no parameters
  report.allow_update_rounding({off_by("weight", INFINITY), off_by("router.choice_bias", INFINITY)});
  CHECK(report.steps_to_explain() == 2);
  report.allow_update_rounding({off_by("weight", 0), off_by("router.choice_bias", 0.5)});
  CHECK(report.steps_to_explain() == 0);
  CHECK(report.failure().empty());

  ParityReport wrong_update = report_of(0.5, 0);
  wrong_update.allow_update_rounding({off_by("weight", 0.5), off_by("router.choice_bias", 0)});
  CHECK(wrong_update.steps_to_explain() == 2);
  CHECK(contains(wrong_update.failure(), "weight by 5.0e-01"));
}
