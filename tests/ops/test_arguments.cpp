// What every verb does with a dtype the backend lacks, and with arguments that do not fit.
#include <catch2/catch.hpp>

#include "ops/device.h"
#include "ops/ops.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;
using Catch::Matchers::Contains;

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

TEST_CASE("tensors of one call that should be of one dtype are our own error, with the verb and both dtypes") {
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
  CHECK(complaint([&] { ops.square_sum({half, total}); }) == "square_sum: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] {
          ops.adamw({.value = half, .gradient = half, .m = half, .v = half, .clip_factor = one, .skip = one});
        }) == "adamw: a tensor of bf16 where f32 is due");
  CHECK(complaint([&] { ops.sgd({.value = half, .gradient = half, .m = half, .clip_factor = one, .skip = one}); }) ==
        "sgd: a tensor of bf16 where f32 is due");
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
