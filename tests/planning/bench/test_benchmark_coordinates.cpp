// The coordinate check: with muP no activation grows with the width, by any rule; without it parts of layers and logits
// do.
#include "distributed/comm/thread_communicator.h"
#include "planning/bench/comparisons.h"
#include "support/catch.h"

using namespace megatron;

namespace {

Report measured(const CoordinatesCase& benchmark) {
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

void require_level_sizes(const CoordinatesCase& benchmark) {
  const Report report = measured(benchmark);
  INFO(report.text);
  for (const char* key : {"embedding", "attention_0", "mlp_0", "attention_1", "mlp_1"}) {
    CAPTURE(key);
    CHECK(growth(report, "mup", key) > 1 / 1.5);
    CHECK(growth(report, "mup", key) < 1.5);
  }
  // Logits fall to what is learned, since the part of the initial weights falls with the root of the width.
  CHECK(growth(report, "mup", "logits") > 0.5);
  CHECK(growth(report, "mup", "logits") < 1.25);
  CHECK(growth(report, "none", "mlp_0") > 2);
  CHECK(growth(report, "none", "mlp_1") > 2);
  CHECK(growth(report, "none", "logits") > 1.5);
}

CoordinatesCase by_rule(const char* rule, double rate) {
  CoordinatesCase benchmark{.widths = {64, 256}, .learning_rate = rate};
  benchmark.edit = [rule](Config& config) { config.optimizer.name = rule; };
  return benchmark;
}

}  // namespace

TEST_CASE("coordinates: with muP sizes do not depend on the width") {
  require_level_sizes(by_rule("adamw", 0.003));
  require_level_sizes(by_rule("lion", 0.001));
  require_level_sizes(by_rule("sgd", 0.03));
}

TEST_CASE("coordinates: Muon's sizes do not either, by both scales") {
  for (const char* scale : {"spectral", "match_adam_rms"}) {
    CAPTURE(scale);
    const bool spectral = scale == std::string("spectral");
    CoordinatesCase benchmark = by_rule("muon", spectral ? 0.02 : 0.005);
    benchmark.edit = [=](Config& config) {
      config.optimizer.name = "muon";
      config.optimizer.momentum = 0.95;
      config.optimizer.muon_scale = scale;
      config.optimizer.adamw_learning_rate_factor = spectral ? 0.1 : 0.5;
    };
    require_level_sizes(benchmark);
  }
}

TEST_CASE("coordinates: nor do those of an untied model of larger heads") {
  CoordinatesCase benchmark{.widths = {64, 256}};
  benchmark.edit = [](Config& config) {
    config.model.tie_embeddings = false;
    config.model.attention_heads = 2;
    if (config.model.base_hidden_size > 0) config.model.base_head_size = 32;
  };
  require_level_sizes(benchmark);
}

TEST_CASE("coordinates: a row for each scaling and width, equal at the base") {
  const Report report = measured({.widths = {32, 64}, .layers = 1, .steps = 2});
  REQUIRE(report.rows.size() == 4);
  nlohmann::json base = report.rows[0];
  base["scaling"] = "mup";
  CHECK(base == report.rows[2]);
  CHECK(report.rows[3].at("width") == 64);
  CHECK(report.rows[3].size() == 7);
  CHECK_THAT(report.text, Contains("attention 0"));
}
