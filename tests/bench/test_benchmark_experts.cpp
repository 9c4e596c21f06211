// The case of experts on tiny models: the cases do equal work for each token, and what is measured is there.
#include <nlohmann/json.hpp>

#include "bench/benchmark_experts.h"
#include "comm/thread_communicator.h"
#include "model/flops.h"
#include "support/catch.h"

using namespace megatron;

namespace {

std::vector<ExpertsCase> tiny_cases(int ranks) {
  std::vector<ExpertsCase> cases = experts_cases(ranks);
  for (ExpertsCase& each : cases) {
    ModelConfig& model = each.config.model;
    model.layers = 2;
    model.hidden_size = 64;
    model.attention_heads = model.query_groups = 4;
    model.ffn_hidden_size = 256;
    model.moe.ffn_hidden_size = 128;
    model.sequence_length = model.max_position_embeddings = 16;
    model.vocab_size = 200;
  }
  return cases;
}

}  // namespace

TEST_CASE("experts benchmark: a token costs the dense model's work plus a router") {
  const std::vector<ExpertsCase> cases = experts_cases(1);
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
    const std::vector<ExpertsCase> cases = tiny_cases(ranks);
    std::vector<ExpertsTimes> times;
    run_as_threads(ranks, [&](Communicator& world) {
      const std::vector<ExpertsTimes> mine = measure_experts(cases, 2, world);
      if (world.rank() == 0) times = mine;
    });
    REQUIRE(times.size() == cases.size());
    const std::string table = describe(times);
    for (std::size_t i = 0; i < times.size(); ++i) {
      const ExpertsTimes& each = times[i];
      CAPTURE(each.name);
      CHECK(each.name == cases[i].name);
      CHECK(each.tokens_per_second == Approx(4 * 16 / each.seconds));
      CHECK((each.share > 0) == (ranks == 1));
      const bool experts = cases[i].config.model.moe.experts > 0;
      CHECK((each.moving > 0) == experts);
      CHECK((each.routing > 0) == experts);
      CHECK(each.moving + each.routing < 1);
      CHECK(table.find(each.name) != std::string::npos);
      CHECK(nlohmann::json::parse(to_json(each)).at("ratio") == each.ratio);
    }
    CHECK(times[0].ratio == 1);
    CHECK(times[1].ratio > 0);
  }
}
