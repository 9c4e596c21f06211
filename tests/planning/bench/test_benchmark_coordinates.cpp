// The coordinate check: with muP no activation grows with the width, and without it they do.
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

// Four times the width. Measured: 0.50 to 1.34 with muP; without 151, 37 and 3.1 times.
TEST_CASE("coordinates: with muP sizes do not depend on the width") {
  const Report report = measured({});
  INFO(report.text);
  for (const char* key : {"embedding", "attention_0", "mlp_0", "attention_1", "mlp_1", "logits"}) {
    CAPTURE(key);
    CHECK(growth(report, "mup", key) > 0.4);
    CHECK(growth(report, "mup", key) < 1.6);
  }
  CHECK(growth(report, "none", "attention_0") > 20);
  CHECK(growth(report, "none", "mlp_0") > 5);
  CHECK(growth(report, "none", "logits") > 2);
}
