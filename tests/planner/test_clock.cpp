// The clock, by hand: rates of products, attention and links; lanes that overlap with the rank's own work or do not.
#include <catch2/catch.hpp>
#include <cmath>

#include "planner/clock.h"

using namespace megatron;

namespace {

/// 100 TFLOP/s, 1 TB/s, 100 GB/s in nodes of four, 10 GB/s between them; all at full efficiency, without latency.
Hardware toy() {
  Hardware hardware;
  hardware.name = "toy";
  hardware.flops_16bit = 1e14;
  hardware.flops_32bit = 1e13;
  hardware.memory_bytes = 1e12;
  hardware.memory_bandwidth = 1e12;
  hardware.ranks_per_node = 4;
  hardware.node.bandwidth = 1e11;
  hardware.network.bandwidth = 1e10;
  return hardware;
}

ProductWork product(double rows, double columns, double inner, DType type = DType::bf16) {
  return {rows, columns, inner, 0, type};
}

double recorded_seconds(const std::vector<Event>& events, const Hardware& hardware, GroupFacts group,
                        TimedStep* step = nullptr) {
  Recording recording{{StepBegins{}, EnteredSection{Section::forward}}, {std::move(group)}};
  recording.events.insert(recording.events.end(), events.begin(), events.end());
  recording.events.emplace_back(LeftSection{});
  const TimedStep timed = time_recording(recording, hardware);
  REQUIRE(timed.actions.size() == 1);
  if (step != nullptr) *step = timed;
  return timed.actions[0].seconds.total();
}

}  // namespace

TEST_CASE("a product takes its operations at the rate of its smallest dimension, or its bytes at the memory's") {
  Hardware hardware = toy();
  CHECK(product_seconds(product(1000, 1000, 50), hardware) == Approx(1e8 / 1e14));
  CHECK(product_seconds(product(1000, 1000, 50, DType::f32), hardware) == Approx(1e8 / 1e13));
  hardware.used.product_efficiency = 0.5;
  hardware.used.product_half = 50;
  CHECK(product_seconds(product(1000, 1000, 50), hardware) == Approx(1e8 / (1e14 * 0.5 * 0.5)));
  CHECK(product_seconds(product(50, 1000, 1000), hardware) == Approx(1e8 / (1e14 * 0.5 * 0.5)));
  ProductWork wide = product(1, 1000, 1000);
  wide.bytes = 2e6;
  CHECK(product_seconds(wide, toy()) == Approx(2e6 / 1e12));
  CHECK(product_seconds(product(0, 10, 10), hardware) == 0);
}

TEST_CASE("measured products: their own rates where they were measured, between them in between") {
  Hardware hardware = toy();
  hardware.products = {{100, 100, 100, 1e12}, {1000, 1000, 1000, 4e12}};
  CHECK(product_seconds(product(100, 100, 100), hardware) == Approx(2e6 / 1e12).epsilon(1e-4));
  CHECK(product_seconds(product(1000, 1000, 1000), hardware) == Approx(2e9 / 4e12).epsilon(1e-4));
  const double middle = std::sqrt(1e5);
  CHECK(product_seconds(product(middle, middle, middle), hardware) ==
        Approx(2 * middle * middle * middle / 2e12).epsilon(1e-6));
}

TEST_CASE("attention: fused by what the mask leaves, unfused by the square and the scores' passes") {
  Hardware hardware = toy();
  AttentionWork work{.flops = 1e9, .bytes = 1e3, .square_flops = 2e9, .scores = 1e6, .type = DType::bf16};
  CHECK(attention_seconds(work, hardware) == Approx(1e9 / 1e14));
  hardware.used.attention_efficiency = 0.5;
  hardware.used.attention_score_passes = 3;
  CHECK(attention_seconds(work, hardware) == Approx(2e9 / 0.5e14 + 3 * 2e6 / 1e12));
  work.backward = true;
  CHECK(attention_seconds(work, hardware) == Approx(2e9 / 0.5e14 + 6 * 2e6 / 1e12));
}

TEST_CASE("collectives: rings within a node and across nodes, with the latency of trees") {
  Hardware hardware = toy();
  const GroupFacts node{"tensor", 4, 1, 4}, across{"data", 8, 8, 1}, both{"data", 8, 2, 4};
  CHECK(collective_seconds(Verb::all_reduce, 1e9, node, hardware) == Approx(2 * 0.75 * 1e9 / 1e11));
  CHECK(collective_seconds(Verb::all_gather, 1e9, node, hardware) == Approx(0.75 * 1e9 / 1e11));
  CHECK(collective_seconds(Verb::reduce_scatter, 1e9, across, hardware) == Approx(7.0 / 8 * 1e9 / 1e10));
  // Four ranks of a node share the crossing: half of the bytes at 4 x 10 GB/s.
  CHECK(collective_seconds(Verb::all_reduce, 1e9, both, hardware) == Approx(2 * 0.5 * 1e9 / 4e10));
  CHECK(collective_seconds(Verb::all_to_all, 1e9, both, hardware) == Approx(0.5 * 1e9 / 1e10));
  CHECK(collective_seconds(Verb::all_reduce, 1e9, {"alone", 1, 1, 1}, hardware) == 0);
  hardware.network.latency = 1e-3;
  hardware.used.network_efficiency = 0.5;
  CHECK(collective_seconds(Verb::all_gather, 1e9, across, hardware) == Approx(7.0 / 8 * 1e9 / 5e9 + 3e-3));
}

TEST_CASE("what is started runs while the rank computes, until it is waited for") {
  const Hardware hardware = toy();
  const GroupFacts tensor{"tensor", 4, 1, 4};
  const double sum = 2 * 0.75 * 1e9 / 1e11, work = 1e10 / 1e12;  // 15 ms, 10 ms
  const StartedCollective start{Verb::all_reduce, 0, 0, 1e9};
  CHECK(recorded_seconds({start, Waited{0}, MemoryWork{1e10}}, hardware, tensor) == Approx(sum + work));
  CHECK(recorded_seconds({start, MemoryWork{1e10}, Waited{0}}, hardware, tensor) == Approx(sum));
  CHECK(recorded_seconds({start, MemoryWork{2e10}, Waited{0}}, hardware, tensor) == Approx(2 * work));
  // Two of one group, one after the other.
  const StartedCollective second{Verb::all_reduce, 0, 1, 1e9};
  CHECK(recorded_seconds({start, second, MemoryWork{1e10}, Waited{0}, Waited{1}}, hardware, tensor) == Approx(2 * sum));
  TimedStep step;
  recorded_seconds({start, MemoryWork{1e10}, Waited{0}, SentMessage{64}}, hardware, tensor, &step);
  CHECK(step.actions[0].seconds[Cost::memory] == Approx(work));
  CHECK(step.actions[0].seconds[Cost::tensor] == Approx(sum - work));
  CHECK(step.actions[0].sent_bytes == 64);
}

TEST_CASE("software that does not overlap: communication is waited for, or a share of it hidden") {
  Hardware hardware = toy();
  const double sum = 2 * 0.75 * 1e9 / 1e11, work = 1e10 / 1e12;
  const std::vector<Event> events = {StartedCollective{Verb::all_reduce, 0, 0, 1e9}, MemoryWork{1e10}, Waited{0}};
  hardware.used.tensor_blocking = true;
  CHECK(recorded_seconds(events, hardware, {"tensor", 4, 1, 4}) == Approx(sum + work));
  hardware.used.tensor_overlap = 0.5;
  CHECK(recorded_seconds(events, hardware, {"tensor", 4, 1, 4}) == Approx(sum / 2 + work));
  hardware.used.copies_overlap = false;
  CHECK(recorded_seconds(events, hardware, {"data", 4, 1, 4}) == Approx(sum + work));
}

TEST_CASE("only the last step counts, and what it waits for of the one before; sums and update are separate") {
  const Hardware hardware = toy();
  const double gather = 0.75 * 1e9 / 1e11, work = 1e9 / 1e12;
  const Recording recording{{StepBegins{},
                             EnteredSection{Section::forward},
                             MemoryWork{1e9},
                             LeftSection{},
                             EnteredSection{Section::optimizer},
                             StartedCollective{Verb::all_gather, 0, 0, 1e9},
                             LeftSection{},
                             StepBegins{},
                             EnteredSection{Section::forward},
                             MemoryWork{1e9},
                             Waited{0},
                             LeftSection{},
                             EnteredSection{Section::backward},
                             MemoryWork{2e9},
                             LeftSection{},
                             StartedCollective{Verb::reduce_scatter, 0, 1, 1e9},
                             Waited{1},
                             EnteredSection{Section::optimizer},
                             MemoryWork{3e9},
                             LeftSection{}},
                            {{"data", 4, 1, 4}}};
  const TimedStep step = time_recording(recording, hardware);
  REQUIRE(step.actions.size() == 2);
  CHECK(step.actions[0].seconds.total() == Approx(gather));
  CHECK(step.actions[0].seconds[Cost::copies] == Approx(gather - work));
  CHECK(step.actions[1].seconds.total() == Approx(2 * work));
  CHECK(step.sums.total() == Approx(gather));
  CHECK(step.update.total() == Approx(3 * work));
}
