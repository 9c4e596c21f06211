// Results of the verbs on given random data, for tests in which only the threads that do the work change.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

namespace megatron::test {

using Results = std::map<std::string, std::vector<std::byte>>;

template <class Vector>
void keep(Results& results, const std::string& name, const Vector& values) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  results[name].assign(bytes, bytes + values.size() * sizeof(values[0]));
}
template <class T>
void keep(Results& results, const std::string& name, const Owned<T>& x) {
  keep(results, name, x.values());
}

inline void require_equal(const Results& got, const Results& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, bytes] : want) {
    INFO(name);
    CHECK((got.at(name) == bytes));
  }
}

/// The verbs of mixture-of-experts layers: seven experts, of which each row has chosen two.
template <class T>
void expert_verbs(Ops& ops, Results& results, const Owned<T>& x, const Owned<T>& dy) {
  const std::int64_t s = x.shape()[0], b = x.shape()[1], h = x.shape()[2], n = s * b, experts = 7, top_k = 2;
  const ExpertSlots layout{.experts = experts, .capacity = s / 4 + 1, .parts = 2};
  const auto logits = random_tensor({n, experts}, 20, 3), bias = random_tensor({experts}, 21, 0.1);
  const auto positions = counting_ids(s, 2);
  Owned<float> probabilities({s, b, experts}), gates({n, top_k}), log_sums({n}), gaps({n});
  Owned<std::int32_t> chosen({s, b, top_k}), slots({s, b, top_k}), entries({layout.count(b)}), counts({b, experts});
  ops.route_forward({logits, bias, probabilities, chosen, gates, log_sums, gaps, true});
  keep(results, "route_forward probabilities", probabilities);
  keep(results, "route_forward chosen", chosen);
  keep(results, "route_forward gates", gates);
  keep(results, "route_forward log_sums", log_sums);
  keep(results, "route_forward gaps", gaps);
  for (const bool random : {true, false}) {
    ops.plan_routes({chosen, layout, {random, 5, positions, 3}, slots, entries, counts});
    keep(results, random ? "plan_routes slots, random" : "plan_routes slots", slots);
    keep(results, random ? "plan_routes entries, random" : "plan_routes entries", entries);
    keep(results, random ? "plan_routes counts, random" : "plan_routes counts", counts);
  }
  Owned<double> balance({1}, 0.5), z({1}, 0.25);
  Owned<double> choices({experts + 1}, 2.0), least_gap({1}, 9.0);
  ops.tally_routes({counts, gaps, layout.capacity, choices, least_gap});
  keep(results, "tally_routes choices", choices);
  keep(results, "tally_routes least_gap", least_gap);
  Owned<float> shifted = bias;
  ops.shift_choice_bias({choices.tensor().slice(0, 0, experts), 0.01f, shifted});
  keep(results, "shift_choice_bias", shifted);
  ops.route_losses({probabilities, counts, log_sums, top_k, 0, balance, z});
  keep(results, "route_losses balance", balance);
  keep(results, "route_losses z", z);
  Owned<T> rows({layout.count(b), h}), back({n, h});
  for (const bool gated : {true, false}) {
    ops.dispatch_rows({x, entries, gated ? gates.tensor() : Tensor(), top_k, rows});
    keep(results, gated ? "dispatch_rows, gated" : "dispatch_rows", rows);
    ops.combine_rows({rows, slots, 0, gated ? gates.tensor() : Tensor(), back});
    keep(results, gated ? "combine_rows, gated" : "combine_rows", back);
  }
  Owned<float> dgates({n, top_k}), dlogits({n, experts});
  ops.combine_gates_backward({rows, slots, 0, dy, dgates});
  keep(results, "combine_gates_backward", dgates);
  Owned<T> outputs({n * top_k, h});
  ops.combine_rows({rows, slots.tensor().view({n * top_k, 1}), 0, {}, outputs});
  ops.combine_rows({outputs, {}, 0, gates, back, true});
  keep(results, "combine_rows, all choices, added", back);
  ops.route_backward({probabilities, chosen, counts, log_sums, dgates, 0, dlogits, true, 0.5f, 0.25f});
  keep(results, "route_backward", dlogits);
}

/// The verbs of mixed_rows.h.
template <class T>
void mixed_row_verbs(Ops& ops, Results& results, const Owned<T>& x, const Owned<T>& other, const Owned<T>& dy) {
  const std::int64_t s = x.shape()[0], b = x.shape()[1], h = x.shape()[2], n = s * b;
  const auto bias = random_tensor<T>({2}, 31);
  Owned<T> y({n, h}), da({n, h}), db({n, h});
  for (const std::int64_t each : {1, 2}) {
    const bool two = each == 2;
    const std::string kind = two ? ", softmax" : ", sigmoid";
    const auto logits = random_tensor({n, each}, 30, 2);
    Owned<float> dlogits({n, each});
    ops.mix_rows_forward({logits, two ? bias.tensor() : Tensor(), x, other, y});
    keep(results, "mix_rows_forward" + kind, y);
    ops.mix_rows_backward({logits, two ? bias.tensor() : Tensor(), two ? x.tensor() : Tensor(), other, dy,
                           two ? da.tensor() : Tensor(), db, dlogits});
    keep(results, "mix_rows_backward da" + kind, da);
    keep(results, "mix_rows_backward db" + kind, db);
    keep(results, "mix_rows_backward dlogits" + kind, dlogits);
  }
  const auto positions = counting_ids(s, 5);
  const Jitter jitter{.amount = 0.3f, .key = 9, .positions = positions, .first_sample = 2};
  y = Owned<T>({s, b, h});
  for (const bool accumulate : {false, true}) {
    ops.jitter_rows({x, y, accumulate, jitter});
    keep(results, accumulate ? "jitter_rows adding" : "jitter_rows", y);
  }
}

/// Every row-wise and elementwise verb on [s, b, h], whose outputs start from given values where they are added to.
template <class T = float>
Results row_verbs(Ops& ops, std::int64_t s, std::int64_t b, std::int64_t h) {
  Results results;
  const std::int64_t n = s * b, rows = 50;
  const auto x = random_tensor<T>({s, b, h}, 1, 3), dy = random_tensor<T>({s, b, h}, 2),
             residual = random_tensor<T>({s, b, h}, 3);
  const auto bias = random_tensor<T>({h}, 4), gamma = random_tensor<T>({h}, 5), table = random_tensor<T>({rows, h}, 6);
  const auto ids = random_ids(n, rows + 20, 7), targets = random_ids(n, h, 8), positions = counting_ids(s, 5);
  const auto weights = random_tensor({n}, 9, 1, 1);
  const Dropout dropout{.probability = 0.3f, .key = 11, .positions = positions, .first_sample = 3};
  Owned<T> y({s, b, h});
  Owned<float> sums = random_tensor({h}, 10), more_sums = random_tensor({h}, 11);
  Owned<float> mean({n}), rstd({n}), logit({n});

  y = x;
  ops.add_bias({y, bias});
  keep(results, "add_bias", y);
  ops.column_sum({x, sums});
  keep(results, "column_sum", sums);
  ops.bias_activation_forward({x, bias, y});
  keep(results, "bias_activation_forward", y);
  y = dy;
  ops.bias_activation_backward({y, x, bias, y, sums});
  keep(results, "bias_activation_backward", y);
  keep(results, "bias_activation_backward dbias", sums);
  ops.bias_activation_backward({dy, x, {}, y, {}});
  keep(results, "bias_activation_backward without biases", y);
  Owned<T> wide_x = random_tensor<T>({n, 2 * h}, 15), wide_bias = random_tensor<T>({2 * h}, 16), wide_dx({n, 2 * h});
  Owned<float> wide_sums = random_tensor({2 * h}, 17);
  ops.bias_activation_forward({wide_x, wide_bias, y, Activation::swiglu});
  keep(results, "swiglu forward", y);
  ops.bias_activation_backward({dy, wide_x, wide_bias, wide_dx, wide_sums, Activation::swiglu});
  keep(results, "swiglu backward", wide_dx);
  keep(results, "swiglu backward dbias", wide_sums);
  ops.dropout_add_forward({x, bias, residual, y, dropout});
  keep(results, "dropout_add_forward", y);
  ops.dropout_add_backward({dy, y, sums, dropout});
  keep(results, "dropout_add_backward", y);
  keep(results, "dropout_add_backward dbias", sums);
  ops.layer_norm_forward({x, gamma, bias, y, mean, rstd});
  keep(results, "layer_norm_forward", y);
  keep(results, "layer_norm_forward mean", mean);
  keep(results, "layer_norm_forward rstd", rstd);
  y = dy;  // dx lies on dy
  ops.layer_norm_backward({y, x, gamma, mean, rstd, residual, y, sums, more_sums});
  keep(results, "layer_norm_backward", y);
  keep(results, "layer_norm_backward dgamma", sums);
  keep(results, "layer_norm_backward dbeta", more_sums);
  y = x;
  ops.layer_norm_forward({y, gamma, {}, y, {}, rstd, 1e-5f, Normalization::root_mean_square});
  keep(results, "RMSNorm forward", y);
  ops.layer_norm_backward({dy, x, gamma, {}, rstd, {}, y, sums, {}, Normalization::root_mean_square});
  keep(results, "RMSNorm backward", y);
  keep(results, "RMSNorm backward dgamma", sums);
  const auto token_positions = random_ids(n, 100000, 13);
  const auto frequencies = random_tensor({std::min<std::int64_t>(h / 2, 70)}, 14, 0.5, 0.5);
  y = x;
  ops.rotary({y.tensor().view({s, b, 1, h}), token_positions, frequencies});
  keep(results, "rotary", y);
  y = x;
  ops.append_rows({residual.tensor().view({s, b, 1, h}), random_ids(b, s + 1, 18), y.tensor().view({s, b, 1, h})});
  keep(results, "append_rows", y);
  const auto merged_sums = random_tensor({b, 1, s}, 19, 3), part_sums = random_tensor({b, 1, s}, 20, 3);
  Owned<float> merged = random_tensor({s, b, 1, h}, 21), log_sums = merged_sums;
  ops.merge_attention({x.tensor().view({s, b, 1, h}), part_sums, merged, log_sums});
  keep(results, "merge_attention", merged);
  keep(results, "merge_attention log-sum-exp", log_sums);
  for (const bool accumulate : {false, true}) {
    ops.embedding_forward({ids, table, 10, y, accumulate});
    keep(results, accumulate ? "embedding_forward adding" : "embedding_forward", y);
  }
  Owned<float> dtable = random_tensor({rows, h}, 12);
  ops.embedding_backward({ids, dy, 10, dtable});
  keep(results, "embedding_backward", dtable);
  const std::int64_t vocabulary = h - std::min<std::int64_t>(h - 1, 5);
  ops.cross_entropy_local({x, targets, 0, vocabulary, mean, rstd, logit});
  keep(results, "cross_entropy_local maximum", mean);
  keep(results, "cross_entropy_local sum", rstd);
  keep(results, "cross_entropy_local logit", logit);
  Owned<double> total({1}, 0.5);
  ops.cross_entropy_loss({mean, rstd, logit, weights, {}, total});
  keep(results, "cross_entropy_loss", total);
  y = x;
  ops.cross_entropy_backward({y, targets, 0, vocabulary, mean, rstd, weights, 0.1f});
  keep(results, "cross_entropy_backward", y);
  expert_verbs(ops, results, x, dy);
  mixed_row_verbs(ops, results, x, residual, dy);
  return results;
}

/// Every verb on flat ranges of n elements.
inline Results flat_verbs(Ops& ops, std::int64_t n) {
  Results results;
  const auto x = random_tensor({n}, 1), gradient = random_tensor({n}, 2);
  Owned<float> value = x, m = random_tensor({n}, 3), v = random_tensor({n}, 4, 1, 1), one({1}, 0.7f), zero({1});
  ops.adamw({.value = value,
             .gradient = gradient,
             .m = m,
             .v = v,
             .clip_factor = one,
             .skip = zero,
             .learning_rate = 0.1f,
             .weight_decay = 0.1f,
             .step = 3});
  keep(results, "adamw value", value);
  keep(results, "adamw m", m);
  keep(results, "adamw v", v);
  ops.sgd({.value = value,
           .gradient = gradient,
           .m = m,
           .clip_factor = one,
           .skip = zero,
           .learning_rate = 0.1f,
           .weight_decay = 0.1f});
  keep(results, "sgd value", value);
  keep(results, "sgd m", m);
  ops.lion({.value = value,
            .gradient = gradient,
            .m = m,
            .clip_factor = one,
            .skip = zero,
            .learning_rate = 0.1f,
            .weight_decay = 0.1f});
  keep(results, "lion value", value);
  keep(results, "lion m", m);
  Owned<BFloat16> rounded_m({n}), rounded_v({n});
  ops.copy(m, rounded_m);
  ops.copy(v, rounded_v);
  const StateDraws draws{.keys = {5, 6}, .first = 2, .columns = n / 3, .first_row = 3, .first_column = 7};
  ops.adamw({.value = value,
             .gradient = gradient,
             .m = rounded_m,
             .v = rounded_v,
             .draws = draws,
             .clip_factor = one,
             .skip = zero,
             .learning_rate = 0.1f});
  keep(results, "adamw value, states in bf16", value);
  keep(results, "adamw v in bf16", rounded_v);
  ops.sgd({.value = value,
           .gradient = x,
           .m = rounded_m,
           .draws = {.keys = {5}, .columns = n},
           .clip_factor = one,
           .skip = zero});
  keep(results, "sgd m in bf16", rounded_m);
  ops.lion({.value = value, .gradient = x, .m = rounded_m, .draws = draws, .clip_factor = one, .skip = zero});
  keep(results, "lion m in bf16", rounded_m);
  Owned<double> total({1}, 0.25), wide({n});
  ops.square_sum({x, total});
  keep(results, "square_sum", total);
  Owned<float> judgement({4});
  const auto judged = [&](std::int64_t i) { return judgement.tensor().slice(0, i, 1); };
  ops.judge_step({total, total, total, total, 1, 4, judged(0), judged(1), judged(2), judged(3)});
  keep(results, "judge_step", judgement);
  ops.divide_by_norm({.x = value, .square_sum = total, .epsilon = 0.5f});
  keep(results, "divide_by_norm", value);
  ops.normal({.y = value, .key = 5, .first_row = 3, .global_columns = n});
  keep(results, "normal", value);
  const Tensor rows(value.tensor().data(), {3, n / 3}, DType::f32);
  ops.normal({.y = rows, .key = 5, .first_row = 3, .first_column = 7, .global_columns = n});
  keep(results, "normal, a part of each row", value);
  ops.fill(value, 0.3);
  keep(results, "fill", value);
  ops.copy(x, value);
  keep(results, "copy", value);
  ops.copy(x, wide);
  keep(results, "copy to f64", wide);
  std::vector<std::uint16_t> half(static_cast<std::size_t>(n));
  ops.copy(x, Tensor(half.data(), {n}, DType::bf16));
  keep(results, "copy to bf16", half);
  ops.add(gradient, value);
  keep(results, "add", value);
  ops.scale(value, 1.7);
  keep(results, "scale", value);
  return results;
}

template <class T = float>
std::vector<float> product(Ops& ops, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, bool add) {
  const auto a = random_tensor<T>(ta ? Shape{k, m} : Shape{m, k}, 1),
             b = random_tensor<T>(tb ? Shape{n, k} : Shape{k, n}, 2);
  Owned<float> c = random_tensor({m, n + 3}, 3);
  ops.matmul({a, b, ta, tb, c.tensor().slice(1, 0, n), add});
  return c.copied_values();
}

}  // namespace megatron::test
