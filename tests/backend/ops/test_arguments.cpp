// How every verb treats a dtype that the backend lacks, and arguments that do not fit.
#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a dtype the backend lacks is refused with verb and dtype") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  std::vector<double> memory(1 << 10);
  const Tensor x(memory.data(), {4, 2, 8}, DType::f64), row(memory.data(), {8}, DType::f64),
      n(memory.data(), {8}, DType::f64);
  Owned<std::int32_t> ids({8});
  const std::pair<const char*, std::function<void()>> verbs[] = {
      {"add_bias",
       [&] {
         ops.add_bias({x, row});
       }},
      {"column_sum",
       [&] {
         ops.column_sum({x, row});
       }},
      {"bias_activation_forward",
       [&] {
         ops.bias_activation_forward({x, row, x});
       }},
      {"bias_activation_backward",
       [&] {
         ops.bias_activation_backward({x, x, row, x, {}});
       }},
      {"dropout_add_forward",
       [&] {
         ops.dropout_add_forward({x, {}, {}, x, {}});
       }},
      {"dropout_add_backward",
       [&] {
         ops.dropout_add_backward({x, x, {}, {}});
       }},
      {"layer_norm_forward",
       [&] {
         ops.layer_norm_forward({x, row, row, x, n, n});
       }},
      {"layer_norm_backward",
       [&] {
         ops.layer_norm_backward({x, x, row, n, n, {}, x, row, row});
       }},
      {"rotary",
       [&] {
         ops.rotary({Tensor(memory.data(), {4, 1, 2, 8}, DType::f64), ids, n, false});
       }},
      {"append_rows",
       [&] {
         const Tensor rows(memory.data(), {4, 1, 2, 8}, DType::f64);
         ops.append_rows({rows, ids, rows});
       }},
      {"merge_attention",
       [&] {
         const Tensor rows(memory.data(), {4, 1, 2, 8}, DType::f64);
         ops.merge_attention({rows, n, n, n});
       }},
      {"embedding_forward",
       [&] {
         ops.embedding_forward({ids, x, 0, x, false});
       }},
      {"embedding_backward",
       [&] {
         ops.embedding_backward({ids, x, 0, x});
       }},
      {"cross_entropy_local",
       [&] {
         ops.cross_entropy_local({x, ids, 0, 8, n, n, n});
       }},
      {"cross_entropy_backward",
       [&] {
         ops.cross_entropy_backward({x, ids, 0, 8, n, n, {}, 1});
       }},
      {"dispatch_rows",
       [&] {
         ops.dispatch_rows({x, ids, {}, 1, x});
       }},
      {"combine_rows",
       [&] {
         ops.combine_rows({x, ids, 0, {}, x});
       }},
      {"combine_gates_backward",
       [&] {
         ops.combine_gates_backward({x, ids, 0, x, n});
       }},
      {"mix_rows_forward",
       [&] {
         ops.mix_rows_forward({n, {}, x, x, x});
       }},
      {"mix_rows_backward",
       [&] {
         ops.mix_rows_backward({n, {}, {}, x, x, {}, x, n});
       }},
      {"jitter_rows",
       [&] {
         const Tensor rows(memory.data(), {4, 1, 8}, DType::f64);
         ops.jitter_rows({rows, rows, false, {}});
       }},
      {"normal", [&] { ops.normal({.y = n, .global_columns = 8}); }},
  };
  for (const auto& [verb, call] : verbs) {
    CAPTURE(verb);
    try {
      call();
      FAIL_CHECK("nothing was thrown");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::configuration);
      CHECK_THAT(error.what(), Contains(std::string(verb) + ":") && Contains("f64"));
    }
  }
  CHECK_THROWS_WITH(ops.copy(ids, Owned<float>({8})), Contains("copy") && Contains("i32"));
}

TEST_CASE("arguments: differing dtypes in one call are an error naming both") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  std::vector<std::uint16_t> memory(256);
  const Tensor half(memory.data(), {4, 8}, DType::bf16), row(memory.data(), {8}, DType::f16);
  Owned<float> x({4, 8}), statistics({4}), one({1});
  Owned<double> total({1});
  const auto complaint = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.kind() == ErrorKind::internal ? error.what() : "another kind of error");
    }
    return std::string("nothing");
  };
  CHECK(complaint([&] { ops.add_bias({.x = half, .bias = row}); }) == "add_bias: a tensor of f16 where bf16 is due");
  CHECK(complaint([&] { ops.add(half, x); }) == "add: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] { ops.column_sum({.x = half, .y = row}); }) == "column_sum: a tensor of f16 where f32 is due");
  Owned<std::int32_t> chosen({4, 1});
  CHECK(complaint([&] {
          ops.route_forward({half, {}, x, chosen, statistics, statistics, {}});
        }) == "route_forward: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] {
          ops.dispatch_rows({half, chosen, {}, 1, x});
        }) == "dispatch_rows: a tensor of f32 where bf16 is due");
  CHECK(complaint([&] { ops.square_sum({half, total}); }) == "square_sum: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] { ops.divide_by_norm({half, total}); }) == "divide_by_norm: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] { ops.divide_by_norm({x, one}); }) == "divide_by_norm: a tensor of f32 where f64 is due");
  CHECK(complaint([&] {
          ops.adamw({.value = half, .gradient = half, .m = half, .v = half, .clip_factor = one, .skip = one});
        }) == "adamw: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] { ops.sgd({.value = half, .gradient = half, .m = half, .clip_factor = one, .skip = one}); }) ==
        "sgd: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] { ops.lion({.value = half, .gradient = half, .m = half, .clip_factor = one, .skip = one}); }) ==
        "lion: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] {
          ops.adamw(
              {.value = x, .gradient = x, .m = half, .v = x, .draws = {.columns = 8}, .clip_factor = one, .skip = one});
        }) == "adamw: a tensor of f32 where bf16 is due");
  CHECK(complaint([&] {
          ops.judge_step({total, total, one, {}, 1, 1, one, one, one, one});
        }) == "judge_step: a tensor of f32 where f64 is due");
}

TEST_CASE("tensors that do not fit together, and strided ones, are our own errors") {
  const Backend backend = make_test_backend();
  Owned<float> x({4, 8}), bias({7}), wide({4, 16});
  const auto internal = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::internal;
    }
    return false;
  };
  CHECK(internal([&] { backend.ops->add_bias({.x = x, .bias = bias}); }));
  CHECK(internal([&] { backend.ops->add_bias({.x = x, .bias = {}}); }));
  CHECK(internal([&] { backend.ops->copy(x, bias); }));
  CHECK(internal([&] { backend.ops->add(wide.tensor().slice(1, 0, 8), x); }));
  CHECK(internal([&] { backend.ops->column_sum({.x = wide.tensor().slice(1, 0, 8), .y = bias}); }));
}

TEST_CASE("experts, choices and slots that do not fit are our own errors") {
  const Backend backend = make_test_backend();
  Owned<float> logits({6, 4}), probabilities({6, 4}), gates({6, 5}), log_sums({6});
  Owned<std::int32_t> chosen({3, 2, 2}), too_many({6, 5}), slots({3, 2, 2}), entries({16}), counts({2, 4});
  const auto complaint = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.kind() == ErrorKind::internal ? error.what() : "another kind of error");
    }
    return std::string("nothing");
  };
  const auto plan = [&](ExpertSlots layout) {
    return complaint([&] { backend.ops->plan_routes({chosen, layout, {}, slots, entries, counts}); });
  };
  CHECK(plan({.experts = 4, .capacity = 2, .groups = 2}) == "nothing");
  CHECK_THAT(plan({.experts = 4, .capacity = 2, .groups = 3}), Contains("do not divide into groups"));
  CHECK_THAT(plan({.experts = 4, .capacity = 0}), Contains("no places"));
  CHECK_THAT(plan({.experts = 4, .capacity = 3}), Contains("plan_routes"));
  Owned<float> five({5, 8}), two({2, 8});
  CHECK_THAT(complaint([&] { backend.ops->combine_rows({.x = five, .slots = {}, .gates = {}, .y = two}); }),
             Contains("combine_rows"));
  CHECK_THAT(complaint([&] {
               backend.ops->route_forward({logits, {}, probabilities, too_many, gates, log_sums, {}});
             }),
             Contains("route_forward"));
  Owned<double> choices({4}), least({1});
  CHECK_THAT(complaint([&] {
               backend.ops->tally_routes({counts, log_sums, 2, choices, least});
             }),
             Contains("tally_routes"));  // no place for what was dropped
  CHECK_THAT(complaint([&] { backend.ops->shift_choice_bias({choices, 1, log_sums}); }), Contains("shift_choice_bias"));
}

TEST_CASE("parts of rows, and weights of them, that do not fit are our own errors") {
  const Backend backend = make_test_backend();
  Owned<float> x({4, 8}), logits({4, 1}), pairs({4, 2}), triples({4, 3}), short_logits({3, 1}), narrow_rows({4, 7});
  const auto complaint = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.kind() == ErrorKind::internal ? error.what() : "another kind of error");
    }
    return std::string("nothing");
  };
  const auto mix = [&](const Owned<float>& by_row, const Owned<float>& a) {
    return complaint([&] { backend.ops->mix_rows_forward({by_row, {}, a, x, x}); });
  };
  CHECK(mix(logits, x) == "nothing");
  CHECK(mix(pairs, x) == "nothing");
  CHECK_THAT(mix(triples, x), Contains("mix_rows_forward"));
  CHECK_THAT(mix(short_logits, x), Contains("mix_rows_forward"));
  CHECK_THAT(mix(logits, narrow_rows), Contains("mix_rows_forward"));
  // With two logits the backward needs both parts.
  CHECK_THAT(complaint([&] {
               backend.ops->mix_rows_backward({pairs, {}, {}, x, x, {}, x, pairs});
             }),
             Contains("mix_rows_backward"));
  CHECK_THAT(complaint([&] { backend.ops->jitter_rows({x, x, false, {}}); }), Contains("jitter_rows"));
}

TEST_CASE("a bias of distances that does not fit its attention is our own error") {
  const Backend backend = make_test_backend();
  Owned<float> x({4, 2, 3, 8}), lse({2, 3, 4}), bias({3, 32}), other({3, 31}), gradient({3, 32});
  Owned<BFloat16> half({3, 32});
  const auto complaint = [&](const ConstTensor& distance_bias, const Tensor& ddistance_bias, DistanceBuckets buckets) {
    AttentionMask mask;
    mask.distance_bias = distance_bias;
    mask.distance_buckets = buckets;
    try {
      backend.ops->attention_forward(
          {.q = x, .k = x, .v = x, .out = x, .log_sum_exp = lse, .mask = mask, .dropout = {}});
      backend.ops->attention_backward({.dout = x,
                                       .q = x,
                                       .k = x,
                                       .v = x,
                                       .out = x,
                                       .log_sum_exp = lse,
                                       .dq = x,
                                       .dk = x,
                                       .dv = x,
                                       .mask = mask,
                                       .dropout = {},
                                       .ddistance_bias = ddistance_bias});
    } catch (const Error& error) {
      return std::string(error.kind() == ErrorKind::internal ? error.what() : "another kind of error");
    }
    return std::string("nothing");
  };
  CHECK(complaint(bias, gradient, {}) == "nothing");
  CHECK(complaint(bias, {}, {}) == "nothing");
  CHECK_THAT(complaint(bias, {}, {.buckets = 16}), Contains("the bias of distances is [a, buckets]"));
  CHECK_THAT(complaint(half, {}, {}), Contains("of the activations' type"));
  CHECK_THAT(complaint(bias, {}, {.max_distance = 8}), Contains("the buckets of distances make no rule"));
  CHECK_THAT(complaint(bias, other, {}), Contains("the gradient of the bias of distances is f32 [a, buckets]"));
  CHECK_THAT(complaint({}, gradient, {}), Contains("the gradient of a bias of distances that is not there"));
}
