#include <catch2/catch.hpp>

#include "ops/device.h"
#include "ops/ops.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

double gelu(double z) {
  return 0.5 * z * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (z + 0.044715 * z * z * z)));
}
double gelu_slope(double z) {
  return (gelu(z + 1e-5) - gelu(z - 1e-5)) / 2e-5;
}

const std::pair<std::int64_t, std::int64_t> kSizes[] = {{1, 1}, {7, 33}, {33, 7}, {3, 1000}, {300, 64}};

}  // namespace

TEMPLATE_TEST_CASE("bias_gelu_forward is the tanh form", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const auto& [n, f] : kSizes) {
    CAPTURE(n, f);
    const Owned<T> x = random_tensor<T>({n, f}, 1, 6), bias = random_tensor<T>({f}, 2);
    Owned<T> y({n, f}), without_bias({n, f});
    backend.ops->bias_gelu_forward({.x = x, .bias = bias, .y = y});
    backend.ops->bias_gelu_forward({.x = x, .bias = {}, .y = without_bias});
    std::vector<double> want, want_without;
    for (std::int64_t i = 0; i < n * f; ++i) {
      want.push_back(gelu(x.value(i) + bias.value(i % f)));
      want_without.push_back(gelu(x.value(i)));
    }
    CHECK(difference(y, want, 2e-7, 1) == "");
    CHECK(difference(without_bias, want_without, 2e-7, 1) == "");
  }
}

TEST_CASE("gelu keeps its relative accuracy in the left tail, and its limits") {
  const Backend backend = make_test_backend();
  Owned<float> x({6}, {-4, -3, -1e-3f, 0, 30, -30}), y({6});
  backend.ops->bias_gelu_forward({.x = x, .bias = {}, .y = y});
  CHECK(static_cast<double>(y[0]) == Approx(gelu(-4)).epsilon(1e-5));
  CHECK(static_cast<double>(y[1]) == Approx(gelu(-3)).epsilon(1e-5));
  CHECK(static_cast<double>(y[2]) == Approx(gelu(static_cast<double>(x[2]))).epsilon(1e-6));
  CHECK(y[3] == 0);
  CHECK(y[4] == 30);
  CHECK(y[5] == 0);
}

TEMPLATE_TEST_CASE("bias_gelu_backward: dx is set, dbias is added to", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const auto& [n, f] : kSizes) {
    for (const bool with_bias : {true, false}) {
      CAPTURE(n, f, with_bias);
      const Owned<T> x = random_tensor<T>({n, f}, 1, 4), bias = random_tensor<T>({f}, 2),
                     dy = random_tensor<T>({n, f}, 3);
      Owned<T> dx = random_tensor<T>({n, f}, 4);
      Owned<float> dbias = random_tensor({f}, 5);
      std::vector<double> want, want_bias = as_doubles(dbias);
      for (std::int64_t i = 0; i < n * f; ++i) {
        want.push_back(dy.value(i) * gelu_slope(with_bias ? x.value(i) + bias.value(i % f) : x.value(i)));
        want_bias[static_cast<std::size_t>(i % f)] += 2 * want.back();
      }
      const ConstTensor bias_argument = with_bias ? ConstTensor(bias) : ConstTensor();
      backend.ops->bias_gelu_backward({.dy = dy, .x = x, .bias = bias_argument, .dx = dx, .dbias = dbias});
      backend.ops->bias_gelu_backward({.dy = dy, .x = x, .bias = bias_argument, .dx = dx, .dbias = dbias});
      CHECK(difference(dx, want, 1e-6) == "");
      CHECK(difference(dbias, want_bias, 2e-6) == "");

      Owned<T> in_place = dy;
      backend.ops->bias_gelu_backward({.dy = in_place, .x = x, .bias = bias_argument, .dx = in_place, .dbias = {}});
      CHECK(in_place == dx);
      Owned<T> over_x = x;
      backend.ops->bias_gelu_backward({.dy = dy, .x = over_x, .bias = bias_argument, .dx = over_x, .dbias = {}});
      CHECK(over_x == dx);
    }
  }
}
