#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {
const std::pair<std::int64_t, std::int64_t> kBiasSizes[] = {{1, 1},    {7, 33},   {33, 7}, {5, 1000},
                                                            {1000, 5}, {300, 64}, {0, 7}};
}

TEMPLATE_TEST_CASE("add_bias adds the bias to every row", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const auto& [n, c] : kBiasSizes) {
    CAPTURE(n, c);
    Owned<T> x = random_tensor<T>({n, c}, 1);
    const Owned<T> bias = random_tensor<T>({c}, 2);
    std::vector<double> want = as_doubles(x);
    for (std::int64_t i = 0; i < n * c; ++i) want[static_cast<std::size_t>(i)] += bias.value(i % c);
    backend.ops->add_bias({.x = x, .bias = bias});
    CHECK(difference(x, want, 1e-7) == "");
  }
}

TEMPLATE_TEST_CASE("column_sum adds the sums to what is there", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const auto& [n, c] : kBiasSizes) {
    CAPTURE(n, c);
    const Owned<T> x = random_tensor<T>({n, c}, 3);
    Owned<float> y = random_tensor({c}, 4);
    const std::vector<double> before = as_doubles(y);
    std::vector<double> sums(static_cast<std::size_t>(c));
    for (std::int64_t i = 0; i < n * c; ++i) sums[static_cast<std::size_t>(i % c)] += x.value(i);
    std::vector<double> want = before;
    for (int times = 1; times <= 2; ++times) {
      backend.ops->column_sum({.x = x, .y = y});
      for (std::size_t j = 0; j < want.size(); ++j) want[j] += sums[j];
      CHECK(difference(y, want, 2e-6) == "");
    }
  }
}
