// The case of experts on tiny models: the cases do equal work for each token, and what is measured is there.
#include "distributed/comm/thread_communicator.h"
#include "models/families/flops.h"
#include "planning/bench/comparisons.h"
#include "support/catch.h"
#include "support/tiny_model.h"

using namespace megatron;

TEST_CASE("experts benchmark: a token costs the dense model's work plus a router") {
  const std::vector<Case> cases = experts_cases(1);
  REQUIRE(cases.size() == 3);
  const ModelConfig& dense = cases[0].config.model;
  CHECK(dense.moe.experts == 0);
  for (std::size_t i = 1; i < cases.size(); ++i) {
    const ModelConfig& model = cases[i].config.model;
    CHECK(model.moe.experts == 8);
    const std::int64_t router = model.layers * model.moe.experts * model.hidden_size;
    CHECK(multiplying_parameters(model) == multiplying_parameters(dense) + router);
  }
}

TEST_CASE("experts benchmark: times of every case, as text and as JSON") {
  for (const int ranks : {1, 2}) {
    std::vector<Case> cases = experts_cases(ranks);
    for (Case& each : cases) test::cut_down(each.config.model, 16);
    Report report;
    run_as_threads(ranks, [&](Communicator& world) {
      const Report mine = measure_experts(cases, 1, world);  // one round: a median is the value itself
      if (world.rank() == 0) report = mine;
    });
    REQUIRE(report.rows.size() == cases.size());
    const auto speed = [&](std::size_t i) {
      return flops_per_token(cases[i].config.model).model / report.rows[i].at("step_seconds").get<double>();
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const nlohmann::json& row = report.rows[i];
      CAPTURE(row.dump());
      CHECK(row.at("case") == "moe");
      CHECK(row.at("name") == cases[i].name);
      CHECK(row.at("tokens_per_second").get<double>() == Approx(4 * 16 / row.at("step_seconds").get<double>()));
      CHECK(row.at("ratio").get<double>() == Approx(speed(i) / speed(0)));
      CHECK((row.at("share_of_sgemm") > 0) == (ranks == 1));
      const bool experts = cases[i].config.model.moe.experts > 0;
      CHECK((row.at("moving") > 0) == experts);
      CHECK((row.at("routing") > 0) == experts);
      CHECK(row.at("moving").get<double>() + row.at("routing").get<double>() < 1);
      CHECK_THAT(report.text, Contains(cases[i].name));
    }
  }
}
