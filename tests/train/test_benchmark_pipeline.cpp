#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>

#include "train/benchmark_pipeline.h"

using namespace megatron;

TEST_CASE("a schedule's bubble is measured through the executor, and is no smaller than its list's") {
  std::map<std::pair<std::string, int>, double> measured;
  for (const PipelineCase& benchmark : pipeline_cases()) {
    CAPTURE(benchmark.schedule, benchmark.chunks);
    const PipelineBubble bubble = measure_bubble(benchmark, 5e-3, 3);
    measured[{benchmark.schedule, benchmark.chunks}] = bubble.measured;
    CHECK(bubble.by_list == Approx(bubble.formula));
    // Sleeping stages are equally fast but for what the machine does to them: it can only add to the bubble.
    CHECK(bubble.measured > 0.8 * bubble.formula);
    CHECK(bubble.measured < 0.15 + bubble.formula);
    CHECK(to_json(bubble).find("\"stages\":4") != std::string::npos);
    CHECK(describe({bubble}).find(benchmark.schedule) != std::string::npos);
  }
  // 27 % against 16, 9 and 11.
  const double plain = measured.at({"1f1b", 1});
  CHECK(measured.at({"interleaved", 2}) < plain);
  CHECK(measured.at({"interleaved", 4}) < plain);
  CHECK(measured.at({"zero_bubble", 1}) < plain);
}

TEST_CASE("the ends of the model are where they belong: a stage too many or too few would never finish") {
  CHECK(measure_bubble({.schedule = "interleaved", .stages = 3, .micro_batches = 5, .chunks = 3}, 1e-4, 2).measured >
        0);
  CHECK(measure_bubble({.schedule = "zero_bubble", .stages = 3, .micro_batches = 2}, 1e-4, 2).measured > 0);
}
