// Layouts of the same work on tiny models: rows have what was measured, and bytes by the layout's formula.
#include "distributed/comm/thread_communicator.h"
#include "planning/bench/comparisons.h"
#include "support/catch.h"
#include "support/tiny_model.h"

using namespace megatron;

namespace {

nlohmann::json rows_of(LayoutComparison comparison) {
  for (Case& each : comparison.cases) {
    test::cut_down(each.config.model, each.config.model.sequence_length / 128);
    each.config.model.layers = 8;
  }
  nlohmann::json rows;
  run_as_threads(2, [&](Communicator& world) {
    const Report mine = measure_layouts(comparison, 1, world);
    if (world.rank() == 0) rows = mine.rows;
  });
  REQUIRE(rows.size() == comparison.cases.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Config& config = comparison.cases[i].config;
    const double tokens = static_cast<double>(config.train.global_batch_size * config.model.sequence_length);
    CAPTURE(rows[i].dump());
    CHECK(rows[i].at("layout") == comparison.cases[i].name);
    CHECK(rows[i].at("tokens_per_second").get<double>() == Approx(tokens / rows[i].at("step_seconds").get<double>()));
    CHECK(rows[i].at("ratio").get<double>() ==
          Approx(rows[i].at("tokens_per_second").get<double>() / rows[0].at("tokens_per_second").get<double>()));
    CHECK(rows[i].at("bytes_sent") > 0);
  }
  return rows;
}

}  // namespace

TEST_CASE("layouts benchmark: shares send more and hold less in their order") {
  const nlohmann::json rows = rows_of(share_comparison());
  const auto of = [&](const char* share, const char* number) -> double {
    for (const nlohmann::json& row : rows) {
      if (row.at("layout") == share) return row.at(number);
    }
    FAIL("there is no row " << share);
    return 0;
  };
  CHECK(of("gradients", "bytes_held") < of("state", "bytes_held"));
  CHECK(of("weights", "bytes_held") < of("gradients", "bytes_held"));
  CHECK(of("state", "bytes_held") < of("none", "bytes_held"));
  CHECK(of("gradients", "bytes_sent") == Approx(of("state", "bytes_sent")).epsilon(0.01));  // one micro-batch
  CHECK(of("weights", "bytes_sent") > of("gradients", "bytes_sent"));
}

TEST_CASE("layouts benchmark: work counts the attention of longer sequences") {
  const nlohmann::json rows = rows_of(context_comparison());
  REQUIRE(rows.size() > 1);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double more = rows[i].at("work_ratio").get<double>() / rows[i].at("ratio").get<double>();
    CHECK(more > 1);
    CHECK(more == Approx(rows[1].at("work_ratio").get<double>() / rows[1].at("ratio").get<double>()));  // equal lengths
  }
}
