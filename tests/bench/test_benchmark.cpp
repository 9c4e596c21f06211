#include "bench/benchmark.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "comm/thread_communicator.h"
#include "model/flops.h"
#include "support/catch.h"

using namespace megatron;

namespace {

BenchmarkCase case_named(const std::string& name) {
  const std::vector<BenchmarkCase> cases = benchmark_cases();
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const BenchmarkCase& each) { return each.name == name; });
  REQUIRE(found != cases.end());
  return *found;
}

// A case, cut down until it takes milliseconds.
BenchmarkCase cut_down(const std::string& name) {
  BenchmarkCase tiny = case_named(name);
  ModelConfig& model = tiny.config.model;
  model.layers = 2;
  model.sequence_length = 32;
  if (model.has_decoder()) {
    model.decoder_layers = 3;
    model.decoder_sequence_length = 12;
  }
  if (model.hidden_size > 256) {
    model.hidden_size = 64;
    model.attention_heads = model.query_groups = 4;
    model.ffn_hidden_size = 200;
    model.vocab_size = 500;
  }
  tiny.config.train.micro_batch_size = tiny.config.train.global_batch_size = 2;
  return tiny;
}

BenchmarkCase tiny_case() {
  return cut_down("small_8x256");
}

BenchmarkResult run(const BenchmarkCase& benchmark, int steps) {
  BenchmarkResult result;
  run_as_threads(1, [&](Communicator& world) { result = run_benchmark(benchmark, {.steps = steps}, world); });
  return result;
}

const BenchmarkPart& part(const std::vector<BenchmarkPart>& parts, std::string_view name) {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const BenchmarkPart& each) { return each.name == name; });
  INFO(name);
  REQUIRE(found != parts.end());
  return *found;
}

}  // namespace

TEST_CASE("the benchmark's products are the step's own") {
  const BenchmarkCase tiny = tiny_case();
  const BenchmarkResult result = run(tiny, 1);
  CHECK(result.tokens == 64);
  CHECK(result.model_flops == flops_per_token(tiny.config.model, {}).model * 64);
  CHECK(result.sgemm_flops == 6.0 * 64 * static_cast<double>(multiplying_parameters(tiny.config.model)));
  const BenchmarkPart& matmul = part(result.verbs, "matmul");
  CHECK(matmul.flops == result.sgemm_flops);
  int calls = 0;
  for (const BenchmarkPart& product : result.products) calls += product.calls;
  CHECK(matmul.calls == calls);
  CHECK(part(result.verbs, "attention_backward").calls == 2);
}

TEST_CASE("benchmark: products of an encoder and of two streams match the step's") {
  for (const auto& [name, attentions] : {std::pair("bert_base_8x512", 2), std::pair("t5_base_4x512", 2 + 2 * 3)}) {
    CAPTURE(name);
    const BenchmarkCase tiny = cut_down(name);
    const BenchmarkResult result = run(tiny, 1);
    CHECK(result.tokens == 64);
    CHECK(result.model_flops == flops_per_token(tiny.config.model, {}).model * 64);
    const BenchmarkPart& matmul = part(result.verbs, "matmul");
    CHECK(matmul.flops == result.sgemm_flops);
    int calls = 0;
    for (const BenchmarkPart& product : result.products) calls += product.calls;
    CHECK(matmul.calls == calls);
    CHECK(part(result.verbs, "attention_backward").calls == attentions);
    for (const BenchmarkPart& verb : result.verbs) CHECK(verb.seconds.wall > 0);
  }
}

TEST_CASE("benchmark: products of experts are counted with equal loads") {
  BenchmarkCase tiny = cut_down("mixtral_4x256");
  tiny.config.model.moe.ffn_hidden_size = 96;
  const BenchmarkResult result = run(tiny, 1);
  CHECK(result.model_flops == flops_per_token(tiny.config.model, {}).model * 64);
  CHECK(result.sgemm_flops == 6.0 * 64 * static_cast<double>(multiplying_parameters(tiny.config.model)));
  CHECK(part(result.products, "expert up, forward").calls == 2 * 8);
  CHECK(part(result.verbs, "matmul").flops == 0);  // by how many tokens chose each expert
  CHECK(part(result.verbs, "attention_backward").calls == 2);
}

TEST_CASE("the benchmark's parts are within the whole") {
  const double start = Seconds::now().wall;
  const BenchmarkResult result = run(tiny_case(), 3);
  CHECK(3 * result.step.wall < Seconds::now().wall - start);
  for (const BenchmarkPart& verb : result.verbs) {
    CAPTURE(verb.name);
    CHECK(verb.seconds.wall > 0);
    CHECK(verb.seconds.wall < result.step.wall);
  }
  CHECK(result.sections.size() == 5);
  const double products = result.sgemm_flops / result.sgemm.wall, step = result.model_flops / result.step.wall;
  CHECK(result.share(&Seconds::wall) == Approx(step / products));
  double verbs = 0;
  for (const BenchmarkPart& verb : result.verbs) verbs += verb.seconds.wall;
  CHECK(verbs < 1.5 * result.step.wall);  // medians each: together about the step, less what is between verbs
  CHECK(verbs > 0.2 * result.step.wall);
  const std::string text = describe(tiny_case(), result);
  for (const char* word : {"small_8x256", "share of sgemm", "attention_backward", "head, weight gradient"}) {
    CHECK_THAT(text, Contains(word));
  }
}

TEST_CASE("benchmark: two ranks share products or samples and sums are timed") {
  const std::string name = GENERATE("gpt2_124m_tensor2", "gpt2_124m_data2");
  BenchmarkCase tiny = case_named(name);
  ModelConfig& model = tiny.config.model;
  model.layers = 2;
  model.hidden_size = 64;
  model.attention_heads = model.query_groups = 4;
  model.ffn_hidden_size = 256;
  model.sequence_length = model.max_position_embeddings = 32;
  model.vocab_size = 200;  // padded to 256, so that halves are halves
  BenchmarkResult result;
  run_as_threads(2, [&](Communicator& world) {
    const BenchmarkResult mine = run_benchmark(tiny, {.steps = 2}, world);
    if (world.rank() == 0) result = mine;
  });
  CHECK(result.ranks == 2);
  CHECK(result.tokens == 4 * 32);
  CHECK(result.model_flops == flops_per_token(model, {}).model * 4 * 32);
  CHECK(2 * result.sgemm_flops == 6.0 * 4 * 32 * static_cast<double>(multiplying_parameters(model)));
  CHECK(part(result.verbs, "matmul").flops == result.sgemm_flops);
  CHECK(result.communication > 0);
  CHECK((result.overlapped_step.wall > 0) == (name == "gpt2_124m_data2"));
  const nlohmann::json json = nlohmann::json::parse(to_json(tiny, result));
  CHECK(json.at("case") == name);
  CHECK(json.at("tokens_per_second") == result.tokens / result.step.wall);
  CHECK(json.contains("overlapped_step_seconds") == (name == "gpt2_124m_data2"));
}

TEST_CASE("--training-only: no other matrix products") {
  BenchmarkResult result;
  const double start = Seconds::now().wall;
  run_as_threads(
      1, [&](Communicator& world) { result = run_benchmark(tiny_case(), {.steps = 1, .training_only = true}, world); });
  CHECK(result.products.empty());
  CHECK(result.step.wall < Seconds::now().wall - start);
  CHECK(result.step.wall >= 64 / 1e9);  // 64 tokens, at no more than a billion per second
  CHECK_FALSE(nlohmann::json::parse(to_json(tiny_case(), result)).contains("share_of_sgemm"));
}

TEST_CASE("medians are the middle") {
  CHECK(median(std::vector<double>{5, 1, 100}) == 5);
  CHECK(median(std::vector<double>{3}) == 3);
  const Seconds each = median(std::vector<Seconds>{{1, 30}, {2, 20}, {3, 10}});
  CHECK(each.wall == 2);
  CHECK(each.cpu == 20);
}
