// Tests of the benchmarks' cases.
#include "planning/bench/cases.h"

#include <set>

#include "support/catch.h"

using namespace megatron;

TEST_CASE("cases: their ranks have a micro-batch each, and names are unique") {
  std::set<std::string> names;
  for (const Case& each : benchmark_cases()) {
    CAPTURE(each.name);
    CHECK(names.insert(each.name).second);
    const Config& config = each.config;
    CHECK(each.ranks() == (each.title.ends_with(" 2") ? 2 : 1));
    CHECK(config.train.micro_batch_size * config.parallel.data == config.train.global_batch_size);
    CHECK(config.model.hidden_dropout == 0);
    CHECK(config.precision.compute == (each.gpu ? "bf16" : "fp32"));
  }
  for (const Case& each : benchmark_cases("fp16")) {
    CAPTURE(each.name);
    CHECK(names.count(each.name) == 1);
    CHECK(each.config.precision.compute == (each.gpu ? "bf16" : "fp16"));
    CHECK(each.title.ends_with(each.gpu ? ", bf16" : ", fp16"));
  }
  for (const int ranks : {1, 2}) {
    for (const Case& each : experts_cases(ranks)) CHECK(each.ranks() == ranks);
  }
  for (const Case& each : overlap_cases()) CHECK(each.ranks() == 2);
  for (const LayoutComparison& comparison : {share_comparison(), context_comparison()}) {
    for (const Case& each : comparison.cases) CHECK(each.ranks() == 2);
  }
  for (const Case& each : memory_cases()) CHECK(each.ranks() == 8);
}

TEST_CASE("cases: an edit may set the micro-batch and the layout") {
  const Config config = training_config(gpt(2, 64, 2, 16, 100), 8, [](Config& edited) {
    edited.parallel.data = edited.parallel.tensor = 2;
    edited.train.micro_batch_size = 1;
  });
  CHECK(config.train.micro_batch_size == 1);
  CHECK(config.train.global_batch_size == 8);
  CHECK(config.model.ffn_hidden_size == 4 * 64);  // resolved
  CHECK(Case{.name = "", .title = "", .config = config}.ranks() == 4);
}
