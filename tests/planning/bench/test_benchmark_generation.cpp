// The case of generation on a tiny model: what is measured is there, and ratios are those of its parts.
#include "distributed/comm/thread_communicator.h"
#include "planning/bench/comparisons.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("generation benchmark: numbers of a tiny model as text and as JSON") {
  const GenerationCase tiny{.model = gpt(2, 32, 4, 64, 100), .batch = 3, .prompt = 5, .tokens = 4, .prefill = 16};
  const DecodingPipeline pipeline{.bubble = 0.25, .by_order = 0.125};
  Report report;  // a single round: a median is the value itself
  run_as_threads(1, [&](Communicator& world) { report = measure_generation(tiny, pipeline, 1, world); });
  REQUIRE(report.rows.size() == 1);
  const nlohmann::json& row = report.rows[0];
  CHECK(row.at("case") == "generate");
  REQUIRE(row.at("decoding").size() == 4);
  // Parameters of two layers of hidden size 32 and a final norm, of 128 words; a step reads no table of positions.
  const double weights = 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32 + 128 * 32;
  const double cache = 2 * 2 * 32 * (5 + 4 / 2.0);
  for (std::size_t i = 0; i < 4; ++i) {
    const nlohmann::json& each = row.at("decoding")[i];
    CAPTURE(each.dump());
    const int batch = i % 2 == 0 ? 1 : 3;
    CHECK(each.at("precision") == (i < 2 ? "fp32" : "bf16"));
    CHECK(each.at("batch") == batch);
    CHECK(each.at("bytes_per_step") == (i < 2 ? 4 : 2) * (weights + batch * cache));
    CHECK(each.at("tokens_per_second").get<double>() == Approx(batch / each.at("step_seconds").get<double>()));
  }
  const auto number = [&](const char* key) { return row.at(key).get<double>(); };
  const auto step = [&](std::size_t i, const char* key) { return row.at("decoding")[i].at(key).get<double>(); };
  const auto share = [&](std::size_t i) {
    return 1e-9 * step(i, "bytes_per_step") / step(i, "step_seconds") / number("read_gigabytes_per_second");
  };
  const auto speed = [&](std::size_t i) { return step(i, "tokens_per_second"); };
  CHECK(number("share_of_bandwidth") == Approx(share(0)));
  CHECK(number("share_of_bandwidth_bf16") == Approx(share(2)));
  CHECK(number("bf16_over_fp32") == Approx(speed(2) / speed(0)));
  CHECK(number("batch_over_one") == Approx(speed(1) / speed(0)));
  CHECK(number("batch_over_one_bf16") == Approx(speed(3) / speed(2)));
  CHECK(number("batch_bf16_over_fp32") == Approx(speed(3) / speed(1)));
  CHECK(number("prefill_bf16_over_fp32") > 0);
  CHECK(number("prefill_over_training") ==
        Approx(number("prefill_tokens_per_second") / number("training_forward_tokens_per_second")));
  CHECK(row.at("pipeline_stages") == 4);
  CHECK(row.at("pipeline_groups") == 8);
  CHECK(row.at("pipeline_bubble") == 0.25);
  CHECK(row.at("pipeline_bubble_by_order") == 0.125);
  for (const char* word : {"fp32", "bf16", "GB/s", "3 prompts", "bubble", "25.0 %"}) {
    CHECK_THAT(report.text, Contains(word));
  }
}
