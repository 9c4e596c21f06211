// The experts' shares, in metrics and at the end of a run, from made-up counts.
#include "support/catch.h"
#include "training/loop/expert_report.h"

using namespace megatron;

namespace {

const std::vector<std::string> kLayers = {"layers.1", "layers.3"};

ExpertUse some_use() {
  // Each layer has 8 choices; one of the 16 found no place.
  const std::vector<double> choices = {4, 3, 1, 0, 1, 2, 2, 2, 2, 0};
  return {4, choices, 3e-5};
}

}  // namespace

TEST_CASE("experts: a line of the metrics has shares by layer") {
  const ExpertMetrics metrics = expert_metrics(some_use(), kLayers);
  CHECK(metrics.dropped == 1.0 / 16);
  CHECK(metrics.router_gap == 3e-5);
  REQUIRE(metrics.load.size() == 2);
  CHECK(metrics.load[0].first == "layers.1");
  CHECK(metrics.load[0].second == std::vector<double>{0.5, 0.375, 0.125, 0});
  CHECK(metrics.load[1].second == std::vector<double>{0.25, 0.25, 0.25, 0.25});
}

TEST_CASE("experts: the end of a run names the busiest and the idlest") {
  ExpertUse use;
  use.add(some_use());
  use.add(some_use());
  CHECK(expert_table(use, kLayers) ==
        "experts in 2 steps: each has 25.0% of its layer's choices if all are equal\n"
        "busiest             50.0%  expert 0 of layers.1\n"
        "idlest               0.0%  expert 3 of layers.1\n"
        "dropped              6.2%  of the choices found no place\n"
        "router gap        3.0e-05  between a chosen expert and the next one, at least");
  const std::vector<double> all = {8, 8, 0};
  CHECK(expert_table({2, all, std::numeric_limits<double>::infinity()}, kLayers)
            .ends_with("router gap           none  every token goes to all experts"));
}
