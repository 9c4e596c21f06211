#include "planning/bench/benchmark.h"

#include <algorithm>
#include <string_view>

#include "distributed/comm/thread_communicator.h"
#include "models/families/flops.h"
#include "support/catch.h"
#include "support/tiny_model.h"

using namespace megatron;

namespace {

Case case_named(const std::string& name) {
  const std::vector<Case> cases = benchmark_cases();
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& each) { return each.name == name; });
  REQUIRE(found != cases.end());
  return *found;
}

// Two samples of 32 tokens.
Case cut_down(const std::string& name) {
  Case tiny = case_named(name);
  test::cut_down(tiny.config.model, 32);
  tiny.config.train.micro_batch_size = tiny.config.train.global_batch_size = 2;
  return tiny;
}

Case tiny_case() {
  return cut_down("small_8x256");
}

// A single step, so that medians are the values themselves; the first rank's result.
BenchmarkResult run(const Case& benchmark, bool training_only = false) {
  BenchmarkResult result;
  run_as_threads(benchmark.ranks(), [&](Communicator& world) {
    const BenchmarkResult mine = run_benchmark(benchmark, {.steps = 1, .training_only = training_only}, world);
    if (world.rank() == 0) result = mine;
  });
  return result;
}

int calls_of(const std::vector<BenchmarkPart>& parts) {
  int calls = 0;
  for (const BenchmarkPart& each : parts) calls += each.calls;
  return calls;
}

double seconds_of(const std::vector<BenchmarkPart>& parts) {
  double seconds = 0;
  for (const BenchmarkPart& each : parts) seconds += each.seconds.wall;
  return seconds;
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
  const Case tiny = tiny_case();
  const BenchmarkResult result = run(tiny);
  CHECK(result.tokens == 64);
  CHECK(result.model_flops == flops_per_token(tiny.config.model, {}).model * 64);
  CHECK(result.sgemm_flops == 6.0 * 64 * static_cast<double>(multiplying_parameters(tiny.config.model)));
  const BenchmarkPart& matmul = part(result.verbs, "matmul");
  CHECK(matmul.flops == result.sgemm_flops);
  CHECK(matmul.calls == calls_of(result.products));
  CHECK(part(result.verbs, "attention_backward").calls == 2);
}

TEST_CASE("benchmark: products of an encoder and of two streams match the step's") {
  for (const auto& [name, attentions] : {std::pair("bert_base_8x512", 2), std::pair("t5_base_4x512", 2 + 2 * 3)}) {
    CAPTURE(name);
    const Case tiny = cut_down(name);
    const BenchmarkResult result = run(tiny);
    CHECK(result.tokens == 64);
    CHECK(result.model_flops == flops_per_token(tiny.config.model, {}).model * 64);
    const BenchmarkPart& matmul = part(result.verbs, "matmul");
    CHECK(matmul.flops == result.sgemm_flops);
    CHECK(matmul.calls == calls_of(result.products));
    CHECK(part(result.verbs, "attention_backward").calls == attentions);
  }
}

TEST_CASE("benchmark: products of experts are counted with equal loads") {
  const Case tiny = cut_down("mixtral_4x256");
  const BenchmarkResult result = run(tiny);
  CHECK(result.model_flops == flops_per_token(tiny.config.model, {}).model * 64);
  CHECK(result.sgemm_flops == 6.0 * 64 * static_cast<double>(multiplying_parameters(tiny.config.model)));
  CHECK(part(result.products, "expert up, forward").calls == 2 * 8);
  CHECK(part(result.verbs, "matmul").flops == 0);  // by how many tokens chose each expert
  CHECK(part(result.verbs, "attention_backward").calls == 2);
}

TEST_CASE("benchmark: sections are the whole step, and operations within it") {
  const BenchmarkResult result = run(tiny_case());
  constexpr double rounding = 1e-3;
  CHECK(result.sections.size() == 5);
  CHECK(seconds_of(result.sections) > (1 - rounding) * result.step.wall);
  CHECK(seconds_of(result.verbs) < (1 + rounding) * result.step.wall);
  for (const BenchmarkPart& verb : result.verbs) CHECK(verb.calls > 0);
  CHECK(seconds_of(result.products) == Approx(result.sgemm.wall));
  const double products = result.sgemm_flops / result.sgemm.wall, step = result.model_flops / result.step.wall;
  CHECK(result.share(&Seconds::wall) == Approx(step / products));
}

TEST_CASE("benchmark report: dearest parts come first, the least are left out") {
  const Case benchmark{.name = "small", .title = "a title", .config = {}};
  BenchmarkResult result;
  result.threads = 2;
  result.step = {2, 1.5};
  result.tokens = 1000;
  result.model_flops = 8e12;
  result.sgemm = {1, 1};
  result.sgemm_flops = 5e12;
  result.sections = {{"forward", {0.5, 0}}, {"backward", {1.5, 0}}};
  result.verbs = {{"fill", {0.1, 0.1}, 3}, {"matmul", {1.6, 1.2}, 40, 4e12}, {"copy", {0.0009, 0.0009}, 1}};
  const Report written = report(benchmark, result);
  for (const char* line :
       {"small: a title, 2 threads per rank (CPU time: of the first)\n", "  share of sgemm          80.0 %\n",
        "  step                    2000.0 ms\n", "  tokens                  500 a second\n",
        "  a step by sections       ms  CPU ms  % of step  calls  GFLOP/s\n"
        "  backward            1500.00               75.0                \n",
        "  matmul                1600.00  1200.00       80.0     40   2500.0\n"
        "  fill                   100.00   100.00        5.0      3         \n"}) {
    CHECK_THAT(written.text, Contains(line));
  }
  for (const char* absent : {"copy", "products alone", "overlap"}) {
    CHECK(written.text.find(absent) == std::string::npos);
  }
  CHECK(written.rows.at(0).at("share_of_sgemm") == 0.8);
  CHECK(written.rows.at(0).at("threads_per_rank") == 2);
}

TEST_CASE("benchmark: two ranks share products or samples and sums are timed") {
  const std::string name = GENERATE("gpt2_124m_tensor2", "gpt2_124m_data2");
  const bool data = name == "gpt2_124m_data2";
  Case tiny = case_named(name);
  ModelConfig& model = tiny.config.model;
  test::cut_down(model, 32);
  const BenchmarkResult result = run(tiny);
  CHECK(result.ranks == 2);
  CHECK(result.tokens == 4 * 32);
  CHECK(result.model_flops == flops_per_token(model, {}).model * 4 * 32);
  CHECK(2 * result.sgemm_flops == 6.0 * 4 * 32 * static_cast<double>(multiplying_parameters(model)));
  CHECK(part(result.verbs, "matmul").flops == result.sgemm_flops);
  CHECK(result.communication > 0);  // 0 where no group's time is taken
  CHECK(result.communication <= part(result.sections, "communication").seconds.wall);
  CHECK(result.overlapped_step.has_value() == data);
  const nlohmann::json row = report(tiny, result).rows.at(0);
  CHECK(row.at("case") == name);
  CHECK(row.at("ranks") == 2);
  CHECK(row.at("step_seconds") == result.step.wall);
  CHECK(row.at("tokens_per_second") == result.tokens / result.step.wall);
  CHECK(row.contains("overlapped_step_seconds") == data);
}

TEST_CASE("--training-only: no other matrix products") {
  const BenchmarkResult result = run(tiny_case(), true);
  CHECK(result.products.empty());
  CHECK(result.sgemm_flops == 0);
  CHECK(result.tokens == 64);
  const Report written = report(tiny_case(), result);
  CHECK_FALSE(written.rows.at(0).contains("share_of_sgemm"));
  CHECK(written.text.find("sgemm") == std::string::npos);
}

TEST_CASE("medians are the middle") {
  CHECK(median(std::vector<double>{5, 1, 100}) == 5);
  CHECK(median(std::vector<double>{3}) == 3);
  const Seconds each = median(std::vector<Seconds>{{1, 30}, {2, 20}, {3, 10}});
  CHECK(each.wall == 2);
  CHECK(each.cpu == 20);
}
