// Verbs allocate nothing.
#include <algorithm>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/attention_run.h"
#include "support/catch.h"
#include "support/counted_allocations.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

TEMPLATE_TEST_CASE("no verb allocates, those with workspace once they have run", "", float, BFloat16) {
  const Backend backend = make_cpu_backend(GENERATE(1, 2));
  Ops& ops = *backend.ops;
  const std::int64_t s = 4, b = 2, h = 2050, n = s * b;
  Owned<TestType> x({s, b, h}), y({s, b, h}), bias({h}), q({s, b, 2, 8}), product({n, n});
  Owned<BFloat16> rounded({n * h});
  Owned<float> dbias({h}), dtable({n, h}), mean({n}), rstd({n}), log_sum_exp({b, 2, s}), one({1}, 1.0f), zero({1}),
      bad_loss({1});
  Owned<float> merged({s, b, 2, 8});
  Owned<double> total({1});
  const Owned<std::int32_t> ids = random_ids(n, 4, 1), positions = counting_ids(s), zero_ids(Shape{b});
  Owned<TestType> distance_bias({2, 32});
  Owned<float> ddistance_bias({2, 32});
  AttentionMask biased;
  biased.distance_bias = distance_bias;
  const ExpertSlots layout{.experts = 4, .capacity = 2};
  Owned<float> logits({s, b, 4}), probabilities({s, b, 4}), gates({n, 2});
  Owned<std::int32_t> chosen({s, b, 2}), slots({s, b, 2}), entries({layout.count(b)}), counts({b, 4});
  Owned<double> tally({5});
  Owned<float> choice_bias({4});
  Owned<TestType> slotted({layout.count(b), h});
  const Dropout dropout{.probability = 0.1f, .key = 1, .positions = positions};

  const auto large = [&] {
    const Tensor rows = x.tensor().view({n, h});
    ops.matmul({rows, rows, false, true, product});
    ops.matmul({product, rows, true, false, dtable, true});
    ops.attention_forward({q, q, q, q, log_sum_exp, 1, {}, {}});
    ops.attention_backward({q, q, q, q, q, log_sum_exp, q, q, q, 1, {}, {}});
    ops.attention_forward({q, q, q, q, log_sum_exp, 1, biased, {}});
    ops.attention_backward({q, q, q, q, q, log_sum_exp, q, q, q, 1, biased, {}, ddistance_bias});
    ops.plan_routes({chosen, layout, {true, 1, positions}, slots, entries, counts});
  };
  large();

  float host = 0;
  const long before = allocations();
  large();
  ops.add_bias({x, bias});
  ops.column_sum({x, dbias});
  ops.bias_activation_forward({x, bias, y});
  ops.bias_activation_backward({y, x, bias, y, dbias});
  ops.dropout_add_forward({x, bias, x, y, dropout});
  ops.dropout_add_backward({x, y, dbias, dropout});
  ops.layer_norm_forward({x, bias, bias, y, mean, rstd});
  ops.layer_norm_backward({y, x, bias, mean, rstd, {}, y, dbias, dbias});
  ops.layer_norm_forward({x, bias, {}, y, {}, rstd, 1e-5f, Normalization::root_mean_square});
  ops.rotary({q, ids, one});
  ops.append_rows({q, zero_ids, q});
  ops.merge_attention({q, log_sum_exp, merged, log_sum_exp});
  ops.embedding_forward({ids, x, 0, y, false});
  ops.embedding_backward({ids, y, 0, dtable});
  ops.cross_entropy_local({x, ids, 0, h, mean, rstd, mean});
  ops.cross_entropy_rescale({mean, mean, rstd});
  ops.cross_entropy_loss({mean, rstd, mean, {}, {}, total});
  ops.cross_entropy_backward({x, ids, 0, h, mean, rstd, {}, 1});
  ops.route_forward({logits, {}, probabilities, chosen, gates, mean, rstd});
  ops.plan_routes({chosen, layout, {}, slots, entries, counts});
  ops.tally_routes({counts, mean, 2, tally, total});
  ops.shift_choice_bias({tally.tensor().slice(0, 0, 4), 1, choice_bias});
  ops.route_losses({probabilities, counts, mean, 2, 0, total, total});
  ops.dispatch_rows({x, entries, gates, 2, slotted});
  ops.combine_rows({slotted, slots, 0, gates, y});
  ops.combine_gates_backward({slotted, slots, 0, y, gates});
  ops.mix_rows_forward({gates, {}, x, y, y});
  ops.mix_rows_backward({gates, {}, x, y, x, x, y, gates});
  ops.jitter_rows({x, y, true, {.amount = 0.1f, .key = 1, .positions = positions}});
  ops.read(one, &host);
  ops.route_backward({probabilities, chosen, counts, mean, gates, 0, logits, true, 1, 1});
  ops.square_sum({dtable, total});
  ops.divide_by_norm({.x = dtable, .square_sum = total});
  ops.judge_step({total, total, total, total, 1, 1, mean.tensor().slice(0, 0, 1), one, zero, bad_loss});
  ops.adamw({.value = dtable, .gradient = dtable, .m = dtable, .v = dtable, .clip_factor = one, .skip = zero});
  ops.sgd({.value = dtable, .gradient = dtable, .m = dtable, .clip_factor = one, .skip = zero});
  ops.lion({.value = dtable, .gradient = dtable, .m = dtable, .clip_factor = one, .skip = zero});
  ops.adamw({.value = dtable,
             .gradient = dtable,
             .m = rounded,
             .v = rounded,
             .draws = {.columns = h},
             .clip_factor = one,
             .skip = zero});
  ops.sgd(
      {.value = dtable, .gradient = dtable, .m = rounded, .draws = {.columns = h}, .clip_factor = one, .skip = zero});
  ops.lion(
      {.value = dtable, .gradient = dtable, .m = rounded, .draws = {.columns = h}, .clip_factor = one, .skip = zero});
  ops.normal({.y = x, .key = 1, .global_columns = h});
  ops.fill(x, 0);
  ops.copy(x, y);
  ops.add(x, y);
  ops.scale(y, 2);
  const long after = allocations();
  CHECK(after == before);
  CHECK(before > 0);
}

TEST_CASE("attention allocates nothing once it has run", "[attention]") {
  struct CountingAllocator : Allocator {
    CpuDevice device;
    int calls = 0;
    std::size_t largest = 0;
    void* allocate(std::size_t bytes) override {
      ++calls;
      largest = std::max(largest, bytes);
      return device.allocate(bytes);
    }
    void deallocate(void* memory, std::size_t bytes) noexcept override { device.deallocate(memory, bytes); }
  } allocator;
  CpuOps ops(allocator);
  AttentionCase c;
  c.queries = c.keys = 1024;
  c.heads = c.key_heads = 2;
  c.size = 64;
  const Inputs<> x(c);
  Run<> run(c, x);
  run.execute(ops);
  const int calls = allocator.calls;
  CHECK(calls <= 2);
  CHECK(allocator.largest < 1024 * 1024 * sizeof(float));  // no matrix of all scores
  run.execute(ops);
  CHECK(allocator.calls == calls);
}
