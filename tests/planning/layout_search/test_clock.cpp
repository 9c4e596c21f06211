// The clock, by hand: rates of products, attention and links; lanes that overlap with the rank's own work or do not.
#include <cmath>

#include "planning/layout_search/clock.h"
#include "support/catch.h"

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

TEST_CASE("product time: limited by its smallest dimension or by its bytes") {
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

TEST_CASE("measured products: own rates where measured and between them elsewhere") {
  Hardware hardware = toy();
  RateTable<3>& forward = hardware.rates_16bit.products.front();
  forward.set({100, 100, 100}, 1e12);
  forward.set({1000, 1000, 1000}, 4e12);
  CHECK(product_seconds(product(100, 100, 100), hardware) == Approx(2e6 / 1e12));
  CHECK(product_seconds(product(1000, 1000, 1000), hardware) == Approx(2e9 / 4e12));
  const double middle = std::sqrt(1e5);
  CHECK(product_seconds(product(middle, middle, middle), hardware) == Approx(2 * middle * middle * middle / 2e12));
  // Another type was not measured: the formula's rate.
  CHECK(product_seconds(product(100, 100, 100, DType::f32), hardware) == Approx(2e6 / 1e13));
  // Other kinds have their own rates, or those of forward.
  ProductWork gradient = product(100, 100, 100);
  gradient.kind = ProductKind::weight_gradient;
  CHECK(product_seconds(gradient, hardware) == Approx(2e6 / 1e12));
  hardware.rates_16bit.products[2].set({100, 100, 100}, 5e11);
  CHECK(product_seconds(gradient, hardware) == Approx(2e6 / 5e11));
}

TEST_CASE("measured attention: rates by length and head size for each pass") {
  Hardware hardware = toy();
  double rate = 1e12;
  for (RateTable<2>& kind : hardware.rates_32bit.attention) {
    kind.set({64, 32}, rate);
    kind.set({256, 32}, 4 * rate);
    rate /= 2;
  }
  AttentionWork work{.flops = 1e9, .length = 64, .head_size = 64, .type = DType::f32};
  CHECK(attention_seconds(work, hardware) == Approx(1e-3));
  work.length = 128;
  CHECK(attention_seconds(work, hardware) == Approx(0.5e-3));
  work.backward = true;
  CHECK(attention_seconds(work, hardware) == Approx(1e-3));
  work.drawn = true;
  CHECK(attention_seconds(work, hardware) == Approx(4e-3));
  work.backward = false;
  CHECK(attention_seconds(work, hardware) == Approx(2e-3));
}

TEST_CASE("measured operations: seconds by bytes or else the memory's rate") {
  Hardware hardware = toy();
  SecondsByBytes& adamw = hardware.rates_32bit.others["adamw"];
  adamw.set(1e3, 1e-6);
  adamw.set(1e5, 1e-5);
  const auto seconds = [&](double bytes) { return operation_seconds({bytes, "adamw"}, DType::f32, hardware); };
  CHECK(seconds(1e2) == Approx(1e-7));
  CHECK(seconds(1e4) == Approx(std::sqrt(1e-11)));
  CHECK(seconds(1e5) == Approx(1e-5));
  CHECK(seconds(3e5) == Approx(3e-5));
  CHECK(seconds(0) == 0);
  CHECK(operation_seconds({1e6, "adamw", "fast"}, DType::f32, hardware) == Approx(1e6 / 1e12));
  CHECK(operation_seconds({1e6, "adamw"}, DType::bf16, hardware) == Approx(1e6 / 1e12));
}

TEST_CASE("measured collectives: by ranks on a node or else by the links") {
  Hardware hardware = toy();
  hardware.links.collectives["all_reduce"][4].set(1e6, 1e-3);
  CHECK(collective_seconds(Verb::all_reduce, 2e6, {"tensor", 4, 1, 4}, hardware) == Approx(2e-3));
  CHECK(collective_seconds(Verb::all_reduce, 8, {"tensor", 4, 1, 4}, hardware) == Approx(1e-3));  // a latency
  CHECK(collective_seconds(Verb::all_reduce, 1e9, {"tensor", 2, 1, 2}, hardware) == Approx(1e9 / 1e11));
  CHECK(collective_seconds(Verb::all_reduce, 1e9, {"data", 4, 4, 1}, hardware) == Approx(1.5 * 1e9 / 1e10));
}

TEST_CASE("attention time: fused by the mask and unfused by the whole square") {
  Hardware hardware = toy();
  AttentionWork work{.flops = 1e9, .bytes = 1e3, .square_flops = 2e9, .scores = 1e6, .type = DType::bf16};
  CHECK(attention_seconds(work, hardware) == Approx(1e9 / 1e14));
  hardware.used.attention_efficiency = 0.5;
  hardware.used.attention_score_passes = 3;
  CHECK(attention_seconds(work, hardware) == Approx(2e9 / 0.5e14 + 3 * 2e6 / 1e12));
  work.backward = true;
  CHECK(attention_seconds(work, hardware) == Approx(2e9 / 0.5e14 + 6 * 2e6 / 1e12));
}

TEST_CASE("collectives: rings within and across nodes with the latency of trees") {
  Hardware hardware = toy();
  const GroupFacts node{"tensor", 4, 1, 4}, across{"data", 8, 8, 1}, both{"data", 8, 2, 4};
  CHECK(collective_seconds(Verb::all_reduce, 1e9, node, hardware) == Approx(2 * 0.75 * 1e9 / 1e11));
  CHECK(collective_seconds(Verb::all_gather, 1e9, node, hardware) == Approx(0.75 * 1e9 / 1e11));
  CHECK(collective_seconds(Verb::reduce_scatter, 1e9, across, hardware) == Approx(7.0 / 8 * 1e9 / 1e10));
  // Four ranks of a node share the crossing: half of the bytes at 4 x 10 GB/s.
  CHECK(collective_seconds(Verb::all_reduce, 1e9, both, hardware) == Approx(2 * 0.5 * 1e9 / 4e10));
  CHECK(collective_seconds(Verb::all_to_all, 1e9, both, hardware) == Approx(0.5 * 1e9 / 1e10));
  CHECK(collective_seconds(Verb::send, 1e9, node, hardware) == Approx(1e9 / 1e11));
  CHECK(collective_seconds(Verb::send, 1e9, across, hardware) == Approx(1e9 / 1e10));
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

TEST_CASE("clock: software without overlap waits for communication") {
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

TEST_CASE("clock: only the last step counts with its waits for the one before") {
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
  CHECK(step.actions[0].seconds.total() == Approx(work));
  // The gather of the step before is there 7.5 ms after the step's start, and the forward asks for it 1 ms after its
  // own.
  CHECK(step.actions[0].waited_from(0) == Approx(gather - work));
  CHECK(step.actions[0].waited_from(2e-3) == Approx(gather - 2e-3 - work));
  CHECK(step.actions[0].waited_from(7e-3) == 0);
  CHECK(step.actions[1].seconds.total() == Approx(2 * work));
  CHECK(step.sums.total() == Approx(gather));
  CHECK(step.update.total() == Approx(3 * work));
}
