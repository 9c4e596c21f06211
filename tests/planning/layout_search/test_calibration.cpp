// The planner against 27 published rows: what a fit to them all leaves, and how well each row is predicted by a fit to
// the others. Prints both, with the constants; docs/planner.md has the same table.
#include <cmath>
#include <iostream>

#include "planning/layout_search/calibration.h"
#include "planning/layout_search/published_rows.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

// A constant's place among a generation's numbers.
struct Meaning {
  FittedConstant constant;
  double Software::*member;
  std::vector<Generation> of;
};

using enum Generation;
const std::vector<Generation> kA100 = {megatron_2021, megatron_2022}, kH100 = {megatron_2024},
                              kAll = {megatron_2021, megatron_2022, megatron_2024};

const std::vector<Meaning>& meanings() {
  static const std::vector<Meaning> all = {
      {{"products, 2021", 0.75, 0.3, 1, 0.04}, &Software::product_efficiency, {megatron_2021}},
      {{"products, 2022", 0.75, 0.3, 1, 0.04}, &Software::product_efficiency, {megatron_2022}},
      {{"products, 2024", 0.7, 0.3, 1, 0.04}, &Software::product_efficiency, {megatron_2024}},
      {{"half size of products", 100, 1, 2000, 0.02}, &Software::product_half, kAll},
      {{"attention with scores", 0.4, 0.05, 1, 0.04}, &Software::attention_efficiency, kA100},
      {{"fused attention", 0.45, 0.05, 1, 0.04}, &Software::attention_efficiency, kH100},
      {{"memory bandwidth", 0.8, 0.05, 1, 0.04}, &Software::memory_efficiency, kAll},
      {{"node links", 0.75, 0.05, 1, 0.04}, &Software::node_efficiency, kAll},
      {{"network", 0.75, 0.05, 1, 0.04}, &Software::network_efficiency, kAll},
      {{"hidden tensor traffic", 0.7, 0.05, 1, 0.04}, &Software::tensor_overlap, kH100},
      // At most what an eager framework needs for a launch and a few small kernels: docs/planner.md has other bounds.
      {{"seconds of an operation", 4e-6, 1e-7, 2e-5, 0.02}, &Software::launch, kAll},
  };
  return all;
}

/// Each row's layout, and its machine with a generation's fixed numbers.
struct PlayedRows {
  std::vector<RecordedLayout> layouts;
  std::vector<Hardware> machines;

  PlayedRows() {
    for (const PublishedRow& row : published_rows()) {
      layouts.push_back(record_row(row));
      const char* const names[] = {"megatron_2021", "megatron_2022", "megatron_2024"};
      machines.push_back(read_hardware(row.generation == megatron_2024 ? "h100-sxm" : "a100-sxm",
                                       names[static_cast<int>(row.generation)]));
    }
  }
  double ratio(int row, const std::vector<double>& constants) const {
    const auto i = static_cast<std::size_t>(row);
    Hardware machine = machines[i];
    const PublishedRow& published = published_rows()[i];
    for (std::size_t k = 0; k < constants.size(); ++k) {
      const Meaning& meaning = meanings()[k];
      if (std::find(meaning.of.begin(), meaning.of.end(), published.generation) != meaning.of.end()) {
        machine.used.*meaning.member = constants[k];
      }
    }
    return step_time(layouts[i], machine).seconds / published.published_seconds();
  }
};

}  // namespace

TEST_CASE("the rows' published seconds are those of their publications") {
  // Computed from TFLOP/s: the seconds that Narayanan et al. and the older README give for the same runs.
  const auto& rows = published_rows();
  REQUIRE(rows.size() == 27);
  const double expected[] = {3.53, 3.70, 3.70, 9.40, 14.5, 16.1, 24.8, 37.6, 54.1, 102.6};
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    CAPTURE(rows[i].name);
    CHECK(rows[i].published_seconds() == Approx(expected[i]).epsilon(0.005));
  }
}

TEST_CASE("27 published rows: errors in sample and left out", "[calibration]") {
  const PlayedRows rows;
  const auto count = static_cast<int>(published_rows().size());
  std::vector<FittedConstant> constants;
  for (const Meaning& meaning : meanings()) constants.push_back(meaning.constant);
  const CalibrationFit fit =
      fit_constants(constants, count, [&](int row, const auto& values) { return rows.ratio(row, values); });
  std::cout << fmt::format("{} constants for {} rows\n", constants.size(), count);
  for (std::size_t i = 0; i < constants.size(); ++i) {
    std::cout << fmt::format("  {:<22} {:.4g}\n", constants[i].name, fit.constants[i]);
  }
  double worst_in = 0, worst_out = 0;
  for (std::size_t i = 0; i < fit.in_sample.size(); ++i) {
    const PublishedRow& row = published_rows()[i];
    std::cout << fmt::format("  {} {:<15} {:>8.2f} s  in sample {:+5.1f} %  left out {:+5.1f} %\n",
                             2021 + (static_cast<int>(row.generation) == 2 ? 3 : static_cast<int>(row.generation)),
                             row.name, row.published_seconds(), 100 * fit.in_sample[i], 100 * fit.left_out[i]);
    worst_in = std::max(worst_in, std::abs(fit.in_sample[i]));
    worst_out = std::max(worst_out, std::abs(fit.left_out[i]));
  }
  std::cout << fmt::format("  worst in sample {:.1f} %, worst left out {:.1f} %\n", 100 * worst_in, 100 * worst_out);
  CHECK(worst_in <= 0.05);
  CHECK(worst_out <= 0.07);
}
