#include <string>
#include <string_view>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "base/core/named_rows.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

double gelu(double z) {
  return 0.5 * z * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (z + 0.044715 * z * z * z)));
}
double exact_gelu(double z) {
  return 0.5 * z * std::erfc(-z / std::sqrt(2.0));
}
double relu(double z) {
  return z > 0 ? z : 0;
}
double silu(double z) {
  return z / (1 + std::exp(-z));
}
double tanh_of(double z) {
  return std::tanh(z);
}

struct ActivationCase {
  std::string_view name;
  Activation activation;
  double (*function)(double);
  bool bounded = false;  ///< by -1 and 1; others are 0 far to the left, and their input far to the right

  std::int64_t x_columns(std::int64_t f) const { return is_gated(activation) ? 2 * f : f; }
  double slope(double z) const { return (function(z + 1e-5) - function(z - 1e-5)) / 2e-5; }
};

constexpr ActivationCase kCases[] = {
    {"gelu", Activation::gelu, gelu},   {"gelu_exact", Activation::gelu_exact, exact_gelu},
    {"relu", Activation::relu, relu},   {"swiglu", Activation::swiglu, silu},
    {"geglu", Activation::geglu, gelu}, {"tanh", Activation::tanh, tanh_of, true},
};
static_assert(same_names(kCases, kActivations), "an activation without its function here");

const std::pair<std::int64_t, std::int64_t> kActivationSizes[] = {{1, 1}, {7, 33}, {33, 7}, {3, 1000}, {300, 64}};

/// Away from 0, where relu has no slope.
template <class T>
Owned<T> inputs(std::int64_t n, std::int64_t columns, double width) {
  Owned<T> x = random_tensor<T>({n, columns}, 1, width);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    if (std::abs(x.value(i)) < 1e-3) x[i] = narrow<T>(0.5f);
  }
  return x;
}

}  // namespace

TEMPLATE_TEST_CASE("bias_activation_forward of every activation", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const ActivationCase& c : kCases) {
    for (const auto& [n, f] : kActivationSizes) {
      CAPTURE(c.name, n, f);
      const std::int64_t columns = c.x_columns(f);
      const Owned<T> x = random_tensor<T>({n, columns}, 1, 6), bias = random_tensor<T>({columns}, 2);
      Owned<T> y({n, f}), without_bias({n, f});
      backend.ops->bias_activation_forward({.x = x, .bias = bias, .y = y, .activation = c.activation});
      backend.ops->bias_activation_forward({.x = x, .bias = {}, .y = without_bias, .activation = c.activation});
      std::vector<double> want, want_without;
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t i = 0; i < f; ++i) {
          const auto at = [&](std::int64_t column) { return x.value(row * columns + column); };
          const auto biased = [&](std::int64_t column) { return at(column) + bias.value(column); };
          want.push_back(c.function(biased(i)) * (columns == f ? 1 : biased(f + i)));
          want_without.push_back(c.function(at(i)) * (columns == f ? 1 : at(f + i)));
        }
      }
      CHECK(difference(y, want, 4e-7, 1) == "");
      CHECK(difference(without_bias, want_without, 4e-7, 1) == "");
    }
  }
}

TEST_CASE("activations: accurate relative to the value in the left tail") {
  const Backend backend = make_test_backend();
  for (const ActivationCase& c : kCases) {
    CAPTURE(c.name);
    const float inputs[] = {-4, -3, -1e-3f, 0, 30, -300};
    Owned<float> x({6, c.x_columns(1)}, 1.0f), y({6, 1});  // the values that gates let through are 1
    for (std::int64_t i = 0; i < 6; ++i) x[i * c.x_columns(1)] = inputs[i];
    backend.ops->bias_activation_forward({.x = x, .bias = {}, .y = y, .activation = c.activation});
    CHECK(y.value(0) == Approx(c.function(-4)).epsilon(1e-5));
    CHECK(y.value(1) == Approx(c.function(-3)).epsilon(1e-5));
    CHECK(y.value(2) == Approx(c.function(static_cast<double>(inputs[2]))).epsilon(1e-6));
    CHECK(y[3] == 0);
    CHECK(y[4] == (c.bounded ? 1 : 30));
    CHECK(y[5] == (c.bounded ? -1 : 0));
  }
}

TEST_CASE("activations let NaN through to where a step can see it") {
  const Backend backend = make_test_backend();
  for (const ActivationCase& c : kCases) {
    CAPTURE(c.name);
    Owned<float> x({1, c.x_columns(1)}, std::numeric_limits<float>::quiet_NaN()), y({1, 1});
    backend.ops->bias_activation_forward({.x = x, .bias = {}, .y = y, .activation = c.activation});
    CHECK(std::isnan(y[0]));
  }
}

TEMPLATE_TEST_CASE("bias_activation_backward: sets dx and adds to dbias", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const ActivationCase& c : kCases) {
    for (const auto& [n, f] : kActivationSizes) {
      for (const bool with_bias : {true, false}) {
        CAPTURE(c.name, n, f, with_bias);
        const std::int64_t columns = c.x_columns(f);
        const Owned<T> x = inputs<T>(n, columns, 4), dy = random_tensor<T>({n, f}, 3);
        Owned<T> bias({columns}), dx = random_tensor<T>({n, columns}, 4);
        for (std::int64_t i = 0; i < columns; ++i) bias[i] = narrow<T>(i % 2 == 0 ? 0.0f : 8.0f);  // see inputs
        Owned<float> dbias = random_tensor({columns}, 5);
        std::vector<double> want(static_cast<std::size_t>(n * columns)), want_bias = as_doubles(dbias);
        for (std::int64_t row = 0; row < n; ++row) {
          for (std::int64_t i = 0; i < f; ++i) {
            const auto z = [&](std::int64_t column) {
              return x.value(row * columns + column) + (with_bias ? bias.value(column) : 0);
            };
            const auto set = [&](std::int64_t column, double gradient) {
              want[static_cast<std::size_t>(row * columns + column)] = gradient;
              want_bias[static_cast<std::size_t>(column)] += 2 * gradient;
            };
            const double gradient = dy.value(row * f + i);
            set(i, gradient * c.slope(z(i)) * (columns == f ? 1 : z(f + i)));
            if (columns != f) set(f + i, gradient * c.function(z(i)));
          }
        }
        BiasActivationBackwardArgs args{.dy = dy,
                                        .x = x,
                                        .bias = with_bias ? ConstTensor(bias) : ConstTensor(),
                                        .dx = dx,
                                        .dbias = dbias,
                                        .activation = c.activation};
        backend.ops->bias_activation_backward(args);
        backend.ops->bias_activation_backward(args);
        CHECK(difference(dx, want, 1e-6) == "");
        CHECK(difference(dbias, want_bias, 2e-6) == "");

        args.dbias = {};
        Owned<T> over_x = x, over_dy = dy;
        args.x = over_x, args.dx = over_x;
        backend.ops->bias_activation_backward(args);
        CHECK(over_x == dx);
        if (is_gated(c.activation)) continue;
        args.x = x, args.dy = over_dy, args.dx = over_dy;
        backend.ops->bias_activation_backward(args);
        CHECK(over_dy == dx);
      }
    }
  }
}

TEST_CASE("activations of tensors that do not fit together are our own error") {
  const Backend backend = make_test_backend();
  Owned<float> x({3, 8}), y({3, 4}), bias({8});
  const auto internal = [&](Activation activation, ConstTensor its_bias) {
    try {
      backend.ops->bias_activation_forward({.x = x, .bias = its_bias, .y = y, .activation = activation});
    } catch (const Error& error) {
      return error.kind() == ErrorKind::internal;
    }
    return false;
  };
  CHECK_FALSE(internal(Activation::swiglu, bias));
  CHECK(internal(Activation::gelu, {}));
  CHECK(internal(Activation::swiglu, bias.tensor().slice(0, 0, 4)));
}
