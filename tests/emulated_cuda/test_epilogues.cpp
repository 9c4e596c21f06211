// That linear layers have their bias and their activation from the product's epilogue where they should, and only
// there: results do not show it.
#include "epilogues.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;
using Kind = Epilogue::Kind;

namespace {

/// A linear layer of 33 inputs, and a layer after it with 10 outputs.
template <class T>
struct Layer {
  Owned<T> x, weight, bias, product, y, dy, next_weight, gradient;
  Owned<float> dbias;
  Backend backend = make_test_backend();

  explicit Layer(std::int64_t n, std::int64_t out = 8)
      : x(random_tensor<T>({n, 33}, 1)),
        weight(random_tensor<T>({out, 33}, 2)),
        bias(random_tensor<T>({out}, 3)),
        product({n, out}),
        y({n, out}),
        dy(random_tensor<T>({n, 10}, 4)),
        next_weight(random_tensor<T>({10, out}, 5)),
        gradient({n, out}),
        dbias({out}) {}

  void multiply(const ConstTensor& its_bias) {
    backend.ops->linear_forward({.x = x, .weight = weight, .bias = its_bias, .y = y});
  }
  void forward(Activation activation, const ConstTensor& its_bias) {
    backend.ops->linear_activation_forward(
        {.x = x, .weight = weight, .bias = its_bias, .product = product, .y = y, .activation = activation});
  }
  void backward(Activation activation, const ConstTensor& its_bias) {
    backend.ops->linear_activation_backward({.dy = dy,
                                             .weight = next_weight,
                                             .product = product,
                                             .bias = its_bias,
                                             .dactivated = gradient,
                                             .dproduct = gradient,
                                             .dbias = its_bias.empty() ? Tensor() : dbias.tensor(),
                                             .activation = activation});
  }
};

/// How many products had each epilogue while body ran: bias, gelu, gelu_gradient.
template <class Body>
std::vector<int> epilogues_of(const Body& body) {
  std::vector<int> counts;
  for (const Kind kind : {Kind::bias, Kind::gelu, Kind::gelu_gradient}) {
    counts.push_back(-emulated_cuda::products_with(kind));
  }
  body();
  std::size_t i = 0;
  for (const Kind kind : {Kind::bias, Kind::gelu, Kind::gelu_gradient}) {
    counts[i++] += emulated_cuda::products_with(kind);
  }
  return counts;
}

template <class T>
std::vector<int> there_and_back(Activation activation, std::int64_t n, std::int64_t out, bool with_bias) {
  Layer<T> layer(n, out);
  const ConstTensor bias = with_bias ? ConstTensor(layer.bias) : ConstTensor();
  return epilogues_of([&] {
    layer.forward(activation, bias);
    layer.backward(activation, bias);
  });
}

using Counts = std::vector<int>;

}  // namespace

TEST_CASE("a bias is its product's epilogue wherever the library has one", "[epilogues][ada]") {
  Layer<BFloat16> even(6), odd(7), odd_columns(6, 13);
  Layer<float> wide(6);
  CHECK(epilogues_of([&] { even.multiply(even.bias); }) == Counts{1, 0, 0});
  CHECK(epilogues_of([&] { wide.multiply(wide.bias); }) == Counts{1, 0, 0});
  CHECK(epilogues_of([&] { odd_columns.multiply(odd_columns.bias); }) == Counts{1, 0, 0});
  CHECK(epilogues_of([&] { odd.multiply(odd.bias); }) == Counts{0, 0, 0});  // the emulated library has none
  CHECK(epilogues_of([&] { even.multiply({}); }) == Counts{0, 0, 0});
  Layer<BFloat16> nine(6, 9);
  CHECK(epilogues_of([&] {
          nine.backend.ops->linear_forward({.x = nine.x,
                                            .weight = nine.weight.tensor().slice(0, 0, 8),
                                            .bias = nine.bias.tensor().slice(0, 1, 8),  // not aligned
                                            .y = nine.y.tensor().view({54}).slice(0, 0, 48).view({6, 8})});
        }) == Counts{0, 0, 0});
}

TEST_CASE("epilogues: GELU and its gradient for 16-bit rows of whole vectors", "[epilogues]") {
  for (const bool with_bias : {true, false}) {
    CAPTURE(with_bias);
    const int bias = with_bias ? 1 : 0;
    CHECK(there_and_back<BFloat16>(Activation::gelu, 6, 8, with_bias) == Counts{0, 1, 1});
    CHECK(there_and_back<Float16>(Activation::gelu, 6, 8, with_bias) == Counts{0, 1, 1});
    CHECK(there_and_back<float>(Activation::gelu, 6, 8, with_bias) == Counts{bias, 0, 0});
    CHECK(there_and_back<BFloat16>(Activation::gelu, 6, 13, with_bias) == Counts{bias, 0, 0});
    CHECK(there_and_back<BFloat16>(Activation::gelu, 7, 8, with_bias) == Counts{0, 0, 0});
    CHECK(there_and_back<BFloat16>(Activation::gelu_exact, 6, 8, with_bias) == Counts{bias, 0, 0});
    CHECK(there_and_back<BFloat16>(Activation::relu, 6, 8, with_bias) == Counts{bias, 0, 0});
  }
}

TEST_CASE("epilogues: none for an activation that is made again from its product", "[epilogues]") {
  Layer<BFloat16> layer(6);
  LinearActivationForwardArgs args{
      .x = layer.x, .weight = layer.weight, .bias = layer.bias, .product = layer.product, .y = layer.y};
  args.again = true;
  CHECK(epilogues_of([&] { layer.backend.ops->linear_activation_forward(args); }) == std::vector<int>{1, 0, 0});
  Owned<BFloat16> again({6, 8});
  layer.backend.ops->activation_again({.product = layer.product, .bias = layer.bias, .y = again});
  CHECK(again == layer.y);
}

TEST_CASE("before compute capability 9.0 GELU is a separate pass", "[.][ada]") {
  CHECK(there_and_back<BFloat16>(Activation::gelu, 6, 8, true) == Counts{1, 0, 0});
  CHECK(there_and_back<Float16>(Activation::gelu, 6, 8, false) == Counts{0, 0, 0});
}
