// A whole mixture of experts against an independent one in numpy (scripts/golden/make_routing_golden.py): top 1, 2 and
// 3 of 4 experts, with tokens that find no place, from the router's scores to the output and back to every gradient.
#include <fstream>
#include <nlohmann/json.hpp>

#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "models/layers/layer_cases.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

constexpr double kRoutingTolerance = 2e-6;

const json& golden() {
  static const json file = [] {
    std::ifstream in(MEGATRON_GOLDEN_FOLDER "/routing.json");
    return json::parse(in);
  }();
  return file;
}

std::vector<float> floats(const json& numbers) {
  return numbers.get<std::vector<float>>();
}

/// Ours for theirs: "router", "up.2", "down.2".
std::string our_name(const std::string& theirs) {
  if (theirs == "router") return "moe.router.weight";
  const auto dot = theirs.find('.');
  return "moe.experts." + theirs.substr(dot + 1) + "." + theirs.substr(0, dot) + ".weight";
}

struct TestedMoe final : TestedLayer {
  TestedMoe(ParameterBuilder& builder, const MoeSizes& sizes, Moe::Saved& kept)
      : moe(builder, "moe", sizes, 0), saved(&kept) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    moe.activate(context, x, *saved);
    moe.project(context, *saved, y);
  }
  void backward(Context& context, Tensor dy, Tensor dx) override { moe.backward(context, dy, *saved, dx); }
  Moe moe;
  Moe::Saved* saved;
};

LayerCase case_of(const json& expected, Communicator& alone, Moe::Saved& saved) {
  const MoeSizes sizes{
      .router = {.hidden = kHidden,
                 .experts = golden().at("experts"),
                 .top_k = expected.at("top_k"),
                 .renormalize = expected.at("renormalize"),
                 .balance_term = 0,
                 .z_term = 0},
      .expert = {.hidden = kHidden, .ffn = golden().at("inner"), .bias = false, .activation = Activation::relu},
      .capacity_factor = expected.at("capacity_factor"),
      .evaluation_capacity_factor = 100,
      .expert_ranks = &alone};
  LayerCase layer;
  layer.name = "oracle";
  layer.in = layer.out = kHidden;
  layer.make = [sizes, &saved](ParameterBuilder& builder) -> std::unique_ptr<TestedLayer> {
    return std::make_unique<TestedMoe>(builder, sizes, saved);
  };
  return layer;
}

template <class T>
std::vector<T> elements(ConstTensor x) {
  const T* first = x.as<T>();
  return {first, first + x.elements()};
}

}  // namespace

TEST_CASE("routing oracle: top-1 to top-3 with drops agree with numpy") {
  REQUIRE(golden().at("sequence") == kSequence);
  REQUIRE(golden().at("samples") == kSamples);
  REQUIRE(golden().at("hidden") == kHidden);
  REQUIRE(golden().at("scale") == kLossScale);
  NamedValues parameters;
  for (const auto& [name, values] : golden().at("parameters").items()) parameters[our_name(name)] = floats(values);
  const std::vector<float> x = floats(golden().at("x")), dy = floats(golden().at("dy"));
  CountingCommunicator alone(0, 1);
  REQUIRE(golden().at("cases").size() == 4);
  for (const json& expected : golden().at("cases")) {
    CAPTURE(expected.at("top_k").get<int>(), expected.at("capacity_factor").get<double>());
    run_as_threads(1, [&](Communicator& world) {
      Moe::Saved saved;
      LayerOnRank rank(case_of(expected, alone, saved), world, false);
      set_values(rank.store(), parameters);
      const std::vector<double> y = rank.forward(x);
      CHECK(elements<std::int32_t>(saved.routes.chosen) == expected.at("chosen").get<std::vector<std::int32_t>>());
      std::vector<int> kept;
      for (const std::int32_t slot : elements<std::int32_t>(saved.routes.slots)) kept.push_back(slot >= 0 ? 1 : 0);
      CHECK(kept == expected.at("kept").get<std::vector<int>>());
      CHECK(distance(elements<float>(saved.routes.gates), floats(expected.at("gates"))) <= kRoutingTolerance);
      CHECK(distance(y, expected.at("y").get<std::vector<double>>()) <= kRoutingTolerance);
      CHECK(rank.loss() == Approx(expected.at("balance").get<double>() + expected.at("z").get<double>()).epsilon(1e-6));

      const json& gradients = expected.at("gradients");
      CHECK(distance(rank.backward(dy), floats(gradients.at("x"))) <= kRoutingTolerance);
      for (const Parameter& parameter : rank.store().all()) {
        INFO(parameter.name);
        bool found = false;
        for (const auto& [name, values] : gradients.items()) {
          if (name == "x" || name == "gates" || our_name(name) != parameter.name) continue;
          found = true;
          CHECK(distance(elements<float>(parameter.gradient), floats(values)) <= kRoutingTolerance);
        }
        CHECK(found);
      }
    });
  }
}
