// The coordinate check: with muP no activation grows with the width, and without, logits do.
#include "distributed/comm/thread_communicator.h"
#include "planning/bench/comparisons.h"
#include "support/catch.h"

using namespace megatron;

namespace {

Report measured(CoordinatesCase benchmark) {
  benchmark.widths = {64, 256};
  Report report;
  run_as_threads(1, [&](Communicator& world) { report = measure_coordinates(benchmark, world); });
  return report;
}

/// A size at the larger width over the same at the smaller, by its key.
double growth(const Report& report, const std::string& scaling, const std::string& key) {
  std::vector<double> sizes;
  for (const nlohmann::json& row : report.rows) {
    if (row.at("scaling") == scaling) sizes.push_back(row.at(key).get<double>());
  }
  REQUIRE(sizes.size() == 2);
  return sizes[1] / sizes[0];
}

}  // namespace

TEST_CASE("coordinates: with muP sizes do not depend on the width") {
  const Report report = measured({});
  INFO(report.text);
  CHECK(false);
}
