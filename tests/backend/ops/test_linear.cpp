// Linear layers as single verbs: what backends fuse is what the parts compute, one after the other.
#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct LinearSize {
  std::int64_t n, in, out;
};
// Even and odd rows, columns of whole vectors and not.
const LinearSize kLinearSizes[] = {{1, 1, 1},    {6, 33, 8}, {7, 33, 8}, {64, 20, 96},
                                   {33, 20, 96}, {6, 5, 13}, {0, 4, 8}};

/// Tolerance of a type: results are rounded more than once on their way where a backend does not fuse.
template <class T>
constexpr double kLinearTolerance = std::is_same_v<T, BFloat16>  ? 1e-2
                                    : std::is_same_v<T, Float16> ? 2e-3
                                                                 : 2e-6;

/// x · weightᵀ + bias, in f64.
template <class T>
std::vector<double> linear(const Owned<T>& x, const Owned<T>& weight, const ConstTensor& bias, LinearSize size) {
  std::vector<double> y;
  for (std::int64_t i = 0; i < size.n; ++i) {
    for (std::int64_t j = 0; j < size.out; ++j) {
      double sum = bias.empty() ? 0 : static_cast<double>(wide(bias.as<T>()[j]));
      for (std::int64_t k = 0; k < size.in; ++k) sum += x.value(i * size.in + k) * weight.value(j * size.in + k);
      y.push_back(sum);
    }
  }
  return y;
}

template <class T>
Owned<T> rounded(const std::vector<double>& values, Shape shape) {
  Owned<T> result(shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    result[i] = narrow<T>(static_cast<float>(values[static_cast<std::size_t>(i)]));
  }
  return result;
}

/// ReLU's derivative jumps: where rounding may take z across 0, dz may be either side's, and takes the one nearer to
/// `got`; dbias goes with it.
template <class T>
void take_sides(Owned<float>& dz, Owned<float>& dbias, const Owned<float>& dactivated, const Owned<float>& z,
                const Owned<T>& got, double rounding) {
  for (std::int64_t i = 0; i < z.elements(); ++i) {
    if (std::abs(z.value(i)) > rounding) continue;
    const bool through = std::abs(got.value(i) - dactivated.value(i)) < std::abs(got.value(i));
    const float taken = through ? dactivated[i] : 0.0f;
    dbias[i % dbias.elements()] += taken - dz[i];
    dz[i] = taken;
  }
}

template <class T>
struct Layer {
  LinearSize size;
  Owned<T> x, weight, bias;

  explicit Layer(LinearSize s)
      : size(s),
        x(random_tensor<T>({s.n, s.in}, 1)),
        weight(random_tensor<T>({s.out, s.in}, 2, 1 / std::sqrt(static_cast<double>(s.in)))),
        bias(random_tensor<T>({s.out}, 3)) {}
  ConstTensor bias_if(bool wanted) const { return wanted ? ConstTensor(bias) : ConstTensor(); }
};

}  // namespace

TEMPLATE_TEST_CASE("linear_forward is the product and its bias", "[linear]", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const LinearSize& size : kLinearSizes) {
    for (const bool with_bias : {true, false}) {
      CAPTURE(size.n, size.in, size.out, with_bias);
      const Layer<T> layer(size);
      Owned<T> y = random_tensor<T>({size.n, size.out}, 4, 100);
      backend.ops->linear_forward({.x = layer.x, .weight = layer.weight, .bias = layer.bias_if(with_bias), .y = y});
      CHECK(difference(y, linear(layer.x, layer.weight, layer.bias_if(with_bias), size), kLinearTolerance<T>) == "");
    }
  }
}

TEST_CASE("linear_forward takes a bias and rows at any place", "[linear]") {
  const Backend backend = make_test_backend();
  const LinearSize size{6, 5, 8};
  const Owned<BFloat16> x = random_tensor<BFloat16>({6, 5}, 1), weight = random_tensor<BFloat16>({8, 5}, 2);
  const Owned<BFloat16> wide_bias = random_tensor<BFloat16>({9}, 3);
  Owned<BFloat16> y({6, 8});
  const ConstTensor bias = wide_bias.tensor().slice(0, 1, 8);
  backend.ops->linear_forward({.x = x, .weight = weight, .bias = bias, .y = y});
  CHECK(difference(y, linear(x, weight, bias, size), kLinearTolerance<BFloat16>) == "");
}

TEMPLATE_TEST_CASE("a linear layer and its activation, there and back, are their parts", "[linear]", float, BFloat16,
                   Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const ActivationRow& row : kActivations) {
    const Activation activation = row.activation;
    for (const LinearSize& given : kLinearSizes) {
      for (const bool with_bias : {true, false}) {
        const std::int64_t f = given.out, k = given.in + 2;
        const LinearSize size{given.n, given.in, is_gated(activation) ? 2 * f : f};
        CAPTURE(static_cast<int>(activation), size.n, size.in, f, with_bias);
        const Layer<T> layer(size);
        const ConstTensor bias = layer.bias_if(with_bias);
        Owned<T> product({size.n, size.out}), y = random_tensor<T>({size.n, f}, 4, 100);
        backend.ops->linear_activation_forward(
            {.x = layer.x, .weight = layer.weight, .bias = bias, .product = product, .y = y, .activation = activation});
        // The parts, in f32 and of a product that has its bias.
        const std::vector<double> exact = linear(layer.x, layer.weight, bias, size);
        const Owned<float> z = rounded<float>(exact, {size.n, size.out});
        Owned<float> want({size.n, f}), dz({size.n, size.out});
        backend.ops->bias_activation_forward({.x = z, .bias = {}, .y = want, .activation = activation});
        CHECK(difference(y, as_doubles(want), kLinearTolerance<T>, 1) == "");

        Owned<T> of_product({size.n, size.out}), whole({size.n, f}), again({size.n, f});
        backend.ops->linear_activation_forward({.x = layer.x,
                                                .weight = layer.weight,
                                                .bias = bias,
                                                .product = of_product,
                                                .y = whole,
                                                .activation = activation,
                                                .again = true});
        backend.ops->activation_again({.product = of_product, .bias = bias, .y = again, .activation = activation});
        CHECK(again == whole);
        CHECK(difference(whole, as_doubles(want), kLinearTolerance<T>, 1) == "");

        const Owned<T> dy = random_tensor<T>({size.n, k}, 6), next = random_tensor<T>({f, k}, 7);
        const Owned<T> next_weight = [&] {  // [k, f]
          Owned<T> turned({k, f});
          for (std::int64_t i = 0; i < k * f; ++i) turned[i] = next[i % f * k + i / f];
          return turned;
        }();
        const Owned<float> dactivated = rounded<float>(linear(dy, next, {}, {size.n, k, f}), {size.n, f});
        const Owned<float> dbias_before = random_tensor({size.out}, 5);
        Owned<float> wanted_bias = dbias_before;
        backend.ops->bias_activation_backward(
            {.dy = dactivated, .x = z, .bias = {}, .dx = dz, .dbias = wanted_bias, .activation = activation});
        for (const bool in_place : {false, true}) {
          CAPTURE(in_place);
          Owned<float> dbias = dbias_before;
          Owned<T> worked_in({size.n, f}), read = product, result({size.n, size.out});
          Tensor dproduct = in_place ? read.tensor() : is_gated(activation) ? result.tensor() : worked_in.tensor();
          backend.ops->linear_activation_backward({.dy = dy,
                                                   .weight = next_weight,
                                                   .product = read,
                                                   .bias = bias,
                                                   .dactivated = worked_in,
                                                   .dproduct = dproduct,
                                                   .dbias = dbias,
                                                   .activation = activation});
          const Owned<T>& got = in_place ? read : is_gated(activation) ? result : worked_in;
          if (activation == Activation::relu) take_sides(dz, wanted_bias, dactivated, z, got, kLinearTolerance<T>);
          CHECK(difference(got, as_doubles(dz), 2 * kLinearTolerance<T>, 1) == "");
          CHECK(difference(dbias, wanted_bias, 2 * kLinearTolerance<T>, 1) == "");
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("gradients of a linear layer's activation are the same bits in place", "[linear]", float, BFloat16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const std::int64_t n : {6, 7}) {
    const Layer<T> layer({n, 12, 16});
    Owned<T> product({n, 16}), y({n, 16});
    backend.ops->linear_activation_forward(
        {.x = layer.x, .weight = layer.weight, .bias = layer.bias, .product = product, .y = y});
    const Owned<T> dy = random_tensor<T>({n, 10}, 6), weight = random_tensor<T>({10, 16}, 7);
    Owned<T> apart({n, 16}), worked_in({n, 16}), in_place = product;
    Owned<float> dbias({16}), second_dbias({16});
    LinearActivationBackwardArgs args{.dy = dy,
                                      .weight = weight,
                                      .product = product,
                                      .bias = layer.bias,
                                      .dactivated = apart,
                                      .dproduct = apart,
                                      .dbias = dbias};
    backend.ops->linear_activation_backward(args);
    args.product = in_place;
    args.dproduct = in_place;
    args.dactivated = worked_in;
    args.dbias = second_dbias;
    backend.ops->linear_activation_backward(args);
    CHECK(in_place == apart);
    CHECK(second_dbias == dbias);
  }
}
