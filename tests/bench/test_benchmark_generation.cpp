// The case of generation on a tiny model: what is measured is there, and ratios are those of its parts.
#include <nlohmann/json.hpp>

#include "bench/benchmark_generation.h"
#include "comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;

namespace {

GenerationCase tiny_case() {
  GenerationCase benchmark;
  ModelConfig& model = benchmark.model;
  model.layers = 2;
  model.hidden_size = 32;
  model.attention_heads = 4;
  model.sequence_length = model.max_position_embeddings = 64;
  model.vocab_size = 100;
  benchmark.batch = 3;
  benchmark.prompt = 5;
  benchmark.tokens = 4;
  benchmark.prefill = 16;
  return benchmark;
}

}  // namespace

TEST_CASE("generation benchmark: numbers of a tiny model as text and as JSON") {
  GenerationSpeed speed;
  run_as_threads(1, [&](Communicator& world) { speed = measure_generation(tiny_case(), 1, world); });
  REQUIRE(speed.decoding.size() == 4);
  // Parameters of two layers of hidden size 32 and a final norm, of 128 words; a step reads no table of positions.
  const double weights = 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32 + 128 * 32;
  const double cache = 2 * 2 * 32 * (5 + 4 / 2.0);
  for (std::size_t i = 0; i < 4; ++i) {
    const DecodingSpeed& each = speed.decoding[i];
    CAPTURE(each.precision, each.batch);
    CHECK(each.precision == (i < 2 ? "fp32" : "bf16"));
    CHECK(each.batch == (i % 2 == 0 ? 1 : 3));
    CHECK(each.bytes == (i < 2 ? 4 : 2) * (weights + static_cast<double>(each.batch) * cache));
    CHECK(each.seconds > 0);
    CHECK(each.tokens_per_second() == Approx(static_cast<double>(each.batch) / each.seconds));
  }
  const auto& decoding = speed.decoding;  // measured in one round: a median is the value itself
  CHECK(speed.share_of_bandwidth == Approx(decoding[0].bytes / decoding[0].seconds / speed.read_bytes_per_second));
  CHECK(speed.share_of_bandwidth_bf16 == Approx(decoding[2].bytes / decoding[2].seconds / speed.read_bytes_per_second));
  CHECK(speed.bf16_over_fp32 == Approx(decoding[0].seconds / decoding[2].seconds));
  CHECK(speed.batch_over_one == Approx(3 * decoding[0].seconds / decoding[1].seconds));
  CHECK(speed.batch_over_one_bf16 == Approx(3 * decoding[2].seconds / decoding[3].seconds));
  CHECK(speed.prefill_over_training == Approx(speed.prefill_tokens_per_second / speed.training_tokens_per_second));

  const DecodingPipeline pipeline;
  const nlohmann::json json = nlohmann::json::parse(to_json(speed, pipeline));
  CHECK(json.at("case") == "generate");
  CHECK(json.at("decoding").at(3).at("tokens_per_second") == decoding[3].tokens_per_second());
  CHECK(json.at("share_of_bandwidth") == speed.share_of_bandwidth);
  for (const char* member :
       {"read_gigabytes_per_second", "share_of_bandwidth_bf16", "bf16_over_fp32", "batch_over_one",
        "batch_over_one_bf16", "prefill_tokens_per_second", "training_forward_tokens_per_second",
        "prefill_over_training", "pipeline_stages", "pipeline_groups", "pipeline_bubble", "pipeline_bubble_by_order"}) {
    CAPTURE(member);
    CHECK(json.at(member).is_number());
  }
  const std::string text = describe(speed, pipeline);
  for (const char* word : {"fp32", "bf16", "GB/s", "bubble"}) CHECK(text.find(word) != std::string::npos);
}

TEST_CASE("generation benchmark: a decoding pipeline idles about as predicted") {
  // Threads wake late on a machine that has other work: next to longer stages that is less.
  DecodingPipeline pipeline;
  for (double seconds = 5e-3; seconds <= 40e-3; seconds *= 2) {
    pipeline = measure_decoding_pipeline(seconds, 1);
    if (pipeline.bubble < 0.1) break;
  }
  CHECK(pipeline.by_order == Approx(3.0 / (8 * 16 + 3)));
  CHECK(pipeline.bubble > 0.5 * pipeline.by_order);
  CHECK(pipeline.bubble < 0.1);
}
