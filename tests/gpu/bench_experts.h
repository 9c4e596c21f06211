// The lines of mixture-of-experts verbs in the benchmark of operations: 8 experts of which each row chooses 2, as
// Mixtral's, and 64 of which it chooses 8. Capacity for the even share times 1.25.
#pragma once

#include "gpu/bench.h"

namespace megatron {

class ExpertBench {
 public:
  ExpertBench(Bench& bench, std::int64_t sequence, std::int64_t batch, std::int64_t hidden, std::int64_t experts,
              std::int64_t top_k)
      : bench_(bench),
        ops_(bench.ops()),
        s_(sequence),
        b_(batch),
        h_(hidden),
        top_k_(top_k),
        layout_{.experts = experts, .capacity = std::max<std::int64_t>(sequence * top_k * 5 / (4 * experts), 1)},
        name_(fmt::format(", {} of {} experts", top_k, experts)) {}

  void run() {
    router();
    rows();
    bench_.release();
  }

 private:
  static constexpr double kHalf = 2, kWide = 4;

  void router() {
    const std::int64_t n = s_ * b_;
    const double by_expert = static_cast<double>(n * layout_.experts) * kWide,
                 by_choice = static_cast<double>(n * top_k_) * kWide,
                 by_slot = static_cast<double>(layout_.count(b_)) * kWide;
    const Tensor logits = bench_.random({n, layout_.experts}, DType::f32),
                 probabilities = bench_.zeros({s_, b_, layout_.experts}), log_sums = bench_.zeros({n});
    const Tensor balance = bench_.zeros({1}, DType::f64), z = bench_.zeros({1}, DType::f64);
    const Tensor positions = bench_.counting(s_);
    bench_.measure("route_forward" + name_, 2 * by_expert + 2 * by_choice, 0, [&] {
      ops_.route_forward({.logits = logits,
                          .choice_bias = {},
                          .probabilities = probabilities,
                          .chosen = chosen_,
                          .gates = gates_,
                          .log_sums = log_sums,
                          .gaps = {},
                          .renormalize = true});
    });
    for (const bool random : {true, false}) {
      bench_.measure((random ? "plan_routes at random" : "plan_routes") + name_, 2 * by_choice + by_slot, 0, [&] {
        ops_.plan_routes({.chosen = chosen_,
                          .layout = layout_,
                          .order = {.random = random, .key = 7, .positions = positions},
                          .slots = slots_,
                          .entries = entries_,
                          .counts = counts_});
      });
    }
    const Tensor choices = bench_.zeros({layout_.experts + 1}, DType::f64), bias = bench_.zeros({layout_.experts});
    bench_.measure("tally_routes" + name_, static_cast<double>(n) * kWide, 0, [&] {
      ops_.tally_routes(
          {.counts = counts_, .gaps = log_sums, .capacity = layout_.capacity, .choices = choices, .least_gap = z});
    });
    bench_.measure("shift_choice_bias" + name_, static_cast<double>(layout_.experts) * kWide, 0, [&] {
      ops_.shift_choice_bias({.choices = choices.slice(0, 0, layout_.experts), .rate = 0, .bias = bias});
    });
    bench_.measure("route_losses" + name_, by_expert, 0, [&] {
      ops_.route_losses({.probabilities = probabilities,
                         .counts = counts_,
                         .log_sums = log_sums,
                         .top_k = top_k_,
                         .balance = balance,
                         .z = z});
    });
    bench_.measure("route_backward" + name_, 2 * by_expert + 2 * by_choice, 0, [&] {
      ops_.route_backward({.probabilities = probabilities,
                           .chosen = chosen_,
                           .counts = counts_,
                           .log_sums = log_sums,
                           .dgates = gates_,
                           .dlogits = logits,
                           .renormalize = true,
                           .balance_scale = 1,
                           .z_scale = 1});
    });
  }

  void rows() {
    const double outside = static_cast<double>(s_ * b_ * h_) * kHalf,
                 inside = static_cast<double>(layout_.count(b_) * h_) * kHalf;
    const Tensor x = bench_.random({s_ * b_, h_}), slotted = bench_.random({layout_.count(b_), h_});
    for (const bool gated : {false, true}) {
      const std::string gates = (gated ? " with gates" : "") + name_;
      const Tensor factors = gated ? gates_ : Tensor();
      bench_.measure("dispatch_rows" + gates, 2 * inside, 0, [&] {
        ops_.dispatch_rows({.x = x, .entries = entries_, .gates = factors, .top_k = top_k_, .y = slotted});
      });
      bench_.measure("combine_rows" + gates, inside + outside, 0,
                     [&] { ops_.combine_rows({.x = slotted, .slots = slots_, .gates = factors, .y = x}); });
    }
    bench_.measure("combine_gates_backward" + name_, inside + outside, 0,
                   [&] { ops_.combine_gates_backward({.x = slotted, .slots = slots_, .dy = x, .dgates = gates_}); });
  }

  Bench& bench_;
  Ops& ops_;
  std::int64_t s_, b_, h_, top_k_;
  ExpertSlots layout_;
  std::string name_;
  Tensor chosen_ = bench_.zeros({s_, b_, top_k_}, DType::i32), slots_ = bench_.zeros({s_, b_, top_k_}, DType::i32),
         entries_ = bench_.zeros({layout_.count(b_)}, DType::i32),
         counts_ = bench_.zeros({b_, layout_.experts}, DType::i32), gates_ = bench_.zeros({s_ * b_, top_k_});
};

/// The verbs of a dense part next to experts, and of a noisy router's input.
inline void bench_mixed_rows(Bench& bench, std::int64_t sequence, std::int64_t batch, std::int64_t hidden) {
  Ops& ops = bench.ops();
  const Shape shape = {sequence, batch, hidden};
  const double bytes = static_cast<double>(shape.elements()) * 2;
  const Tensor x = bench.random(shape), part = bench.random(shape), dy = bench.random(shape);
  const Tensor logits = bench.zeros({sequence * batch, 2}), positions = bench.counting(sequence);
  bench.measure("mix_rows_forward", 3 * bytes, 0,
                [&] { ops.mix_rows_forward({.logits = logits, .bias = {}, .a = x, .b = part, .y = dy}); });
  bench.measure("mix_rows_backward", 5 * bytes, 0, [&] {
    ops.mix_rows_backward(
        {.logits = logits, .bias = {}, .a = x, .b = part, .dy = dy, .da = x, .db = part, .dlogits = logits});
  });
  bench.measure("jitter_rows", 2 * bytes, 0, [&] {
    ops.jitter_rows({.x = x, .y = dy, .jitter = {.amount = 0.1f, .key = 7, .positions = positions}});
  });
  bench.release();
}

}  // namespace megatron
