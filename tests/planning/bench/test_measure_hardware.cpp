// Tests of measuring a machine: a quick measurement has all tables, and they are a hardware file.
#include "planning/bench/measure_hardware.h"

#include <thread>

#include "base/core/error.h"
#include "config/rules/resolve.h"
#include "distributed/comm/thread_communicator.h"
#include "planning/layout_search/search.h"
#include "support/catch.h"

using namespace megatron;

namespace {

Hardware measured(int ranks) {
  std::vector<MeasuredHardware> found(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) {
    found[static_cast<std::size_t>(world.rank())] = measure_hardware({.device = "cpu", .quick = true}, world);
  });
  for (const MeasuredHardware& each : found) {
    CHECK(each.undisturbed > 0);
    CHECK(each.undisturbed <= 1);
  }
  return found[0].hardware;
}

Config small_run() {
  Config config;
  config.model.layers = 2;
  config.model.hidden_size = 64;
  config.model.attention_heads = 2;
  config.model.sequence_length = 32;
  config.model.vocab_size = 128;
  config.data.train = "none";
  config.train.steps = 10;
  config.train.global_batch_size = 4;
  return config;
}

}  // namespace

TEST_CASE("measured machine: all tables are positive and its file says the same") {
  const int ranks = std::thread::hardware_concurrency() >= 2 ? 2 : 1;
  const Hardware hardware = measured(ranks);
  CHECK(hardware.device == "cpu");
  CHECK(hardware.ranks_per_node == ranks);
  CHECK(hardware.threads_per_rank == 1);
  CHECK(hardware.memory_bandwidth > 0);
  for (const DType type : {DType::f32, DType::bf16}) {
    const MeasuredRates& rates = hardware.rates(type);
    for (const RateTable<3>& kind : rates.products) {
      CHECK(kind.rows().size() == 8);
      for (const auto& [sizes, rate] : kind.rows()) CHECK(rate > 0);
    }
    for (const RateTable<2>& kind : rates.attention) CHECK(kind.at({32, 32}) > 0);
    for (const char* operation :
         {"adamw", "adamw_rounded", "sgd", "lion", "add_bias", "layer_norm_backward_rmsnorm",
          "bias_activation_forward_gelu", "bias_activation_backward_swiglu", "dropout_add_forward_drawn",
          "dropout_add_backward_drawn", "rotary", "cross_entropy_backward", "embedding_backward", "square_sum", "fill",
          "dispatch_rows", "route_forward"}) {
      CAPTURE(operation);
      REQUIRE(rates.others.contains(operation));
      CHECK(rates.others.at(operation).at(1e4) > 0);
    }
  }
  if (ranks == 2) {
    for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}) {
      CHECK(hardware.links.collectives.at(name).at(2).at(512) > 0);
    }
    CHECK(hardware.links.messages.at(512) > 0);
    CHECK(hardware.node.bandwidth > 0);
  }
  const std::string text = print_hardware(hardware, "a test");
  const Hardware again = parse_hardware(text, "again.toml");
  CHECK(print_hardware(again, "a test") == text);
  CHECK(again.used.copies_overlap == false);
  CHECK(again.rates_32bit.others.size() == hardware.rates_32bit.others.size());

  const PlannedLayout planned = plan_layout(small_run(), again, {.ranks = ranks});
  CHECK(planned.time.seconds > 0);
  CHECK_THROWS_WITH(plan_layout(small_run(), again, {.ranks = 2 * ranks}), Contains("has no [network]"));
  Config threads = small_run();
  threads.run.threads = 2;
  CHECK_THROWS_WITH(plan_layout(threads, again, {.ranks = ranks}),
                    Contains("was measured with 1 thread per rank, and run.threads = 2"));
}

TEST_CASE("a machine with fewer cores than threads is not measured") {
  run_as_threads(1, [&](Communicator& world) {
    CHECK_THROWS_WITH(measure_hardware({.threads = 4000, .device = "cpu", .quick = true}, world),
                      Contains("1 rank of 4000 threads need 4000 cores"));
  });
}
