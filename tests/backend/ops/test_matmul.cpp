#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/ops/device.h"
#include "backend/ops/product_check.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("matmul: every transpose, setting and adding, awkward sizes, strided", "[matmul]") {
  const Backend backend = make_test_backend();
  const std::int64_t sizes[][3] = {{1, 1, 1},    {7, 1, 33},    {1, 33, 7},    {33, 7, 129},
                                   {129, 33, 1}, {33, 129, 33}, {64, 48, 300}, {1, 300, 129}};
  for (const auto& size : sizes) {
    for (int bits = 0; bits < 16; ++bits) {
      check_product(*backend.ops, size[0], size[1], size[2], (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0,
                    (bits & 8) != 0 ? 3 : 0);
    }
  }
}

TEMPLATE_TEST_CASE("matmul: 16-bit inputs give results rounded once or in f32", "[matmul]", BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const std::int64_t sizes[][3] = {{1, 1, 1}, {7, 1, 33}, {33, 7, 129}, {64, 48, 300}, {1, 300, 129}};
  for (const auto& size : sizes) {
    for (int bits = 0; bits < 16; ++bits) {
      const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, accumulate = (bits & 4) != 0;
      const std::int64_t margin = (bits & 8) != 0 ? 3 : 0;
      check_product<TestType>(*backend.ops, size[0], size[1], size[2], ta, tb, accumulate, margin);
      check_product<TestType, float>(*backend.ops, size[0], size[1], size[2], ta, tb, accumulate, margin);
    }
  }
}

TEMPLATE_TEST_CASE("matmul: few rows, as decoding has", "[matmul]", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  for (std::int64_t m = 1; m <= 34; ++m) {
    for (const auto& [n, k] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {6, 16}, {37, 100}, {13, 1100}, {133, 1013}}) {
      const bool accumulate = m % 2 == 0;
      const std::int64_t margin = m % 3;
      check_product<TestType>(*backend.ops, m, n, k, false, true, accumulate, margin);
      check_product<TestType, float>(*backend.ops, m, n, k, false, true, accumulate, margin);
    }
  }
  check_product<TestType>(*backend.ops, 3, 3000, 70, false, true, false, 0);  // on several threads where there are
  check_product<TestType>(*backend.ops, 17, 59, 2300, false, true, true, 1);
}

TEMPLATE_TEST_CASE("matmul: few rows have the bits of one row", "[matmul]", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  if (!backend.device->is_host_memory()) return;  // a promise of the CPU backend
  constexpr std::int64_t m = 32, n = 89, k = 1501;
  Framed<TestType> a(m, k, 0, 1), b(n, k, 0, 2);
  Framed<float> alone(m, n, 0, 3);
  for (std::int64_t row = 0; row < m; ++row) {
    backend.ops->matmul({a.tensor().slice(0, row, 1), b.tensor(), false, true, alone.tensor().slice(0, row, 1), false});
  }
  for (const std::int64_t rows : {2, 5, 9, 16, 23, 32}) {
    Framed<float> c(rows, n, 0, 3);
    backend.ops->matmul({a.tensor().slice(0, m - rows, rows), b.tensor(), false, true, c.tensor(), false});
    CAPTURE(rows);
    CHECK(std::equal(c.storage.begin(), c.storage.begin() + rows * n, alone.storage.begin() + (m - rows) * n));
  }
}

TEST_CASE("matmul of 16-bit inputs over several tiles in every direction", "[matmul]") {
  const Backend backend = make_test_backend();
  for (int bits = 0; bits < 4; ++bits) {
    const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0;
    check_product<BFloat16>(*backend.ops, 1601, 7, 33, ta, tb, ta, 1);
    check_product<BFloat16>(*backend.ops, 7, 3100, 5, ta, tb, tb, 1);
    check_product<BFloat16>(*backend.ops, 33, 17, 1000, ta, tb, ta != tb, 1);
    check_product<BFloat16, float>(*backend.ops, 33, 17, 1000, ta, tb, true, 1);
    check_product<BFloat16, float>(*backend.ops, 1601, 7, 400, ta, tb, ta, 1);
    check_product<BFloat16>(*backend.ops, 3, 1600, 400, ta, tb, tb, 0);
  }
}

TEMPLATE_TEST_CASE("matmul: infinities and NaN are kept and overflow becomes infinity", "[matmul]", BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const auto multiply = [&](float x, float y) {
    TestVector<TestType> a(2, narrow<TestType>(x)), b(2, narrow<TestType>(y)), c(1);
    const DType type = DTypeOf<TestType>::value;
    backend.ops->matmul(
        {Tensor(a.data(), {1, 2}, type), Tensor(b.data(), {2, 1}, type), false, false, Tensor(c.data(), {1, 1}, type)});
    return wide(c[0]);
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(multiply(infinity, -2) == -infinity);
  CHECK(std::isnan(multiply(infinity, 0)));
  CHECK(std::isnan(multiply(std::numeric_limits<float>::quiet_NaN(), 1)));
  const float large = std::is_same_v<TestType, Float16> ? 200.0f : 0x1p64f;
  CHECK(multiply(large, large) == infinity);
  CHECK(multiply(large, -large) == -infinity);
}

TEMPLATE_TEST_CASE("matmul with an extent of zero", "[matmul]", float, BFloat16) {
  const Backend backend = make_test_backend();
  for (int bits = 0; bits < 8; ++bits) {
    const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, accumulate = (bits & 4) != 0;
    check_product<TestType>(*backend.ops, 7, 5, 0, ta, tb, accumulate, 2);  // c becomes 0, or stays
    check_product<TestType>(*backend.ops, 0, 5, 3, ta, tb, accumulate, 2);
    check_product<TestType>(*backend.ops, 7, 0, 3, ta, tb, accumulate, 2);
  }
}

TEST_CASE("matmul refuses what it cannot do", "[matmul]") {
  const Backend backend = make_test_backend();
  std::vector<float> memory(64);
  const Tensor a(memory.data(), {2, 3}, DType::f32), b(memory.data() + 16, {3, 4}, DType::f32);
  const Tensor c(memory.data() + 32, {2, 4}, DType::f32), half(memory.data() + 16, {3, 4}, DType::bf16);
  const Tensor half_c(memory.data() + 32, {2, 4}, DType::bf16), ids(memory.data(), {2, 3}, DType::i32);
  CHECK_THROWS_WITH(backend.ops->matmul({a, half, false, false, c, false}), Contains("two dtypes"));
  CHECK_THROWS_WITH(backend.ops->matmul({a, b, false, false, half_c, false}), Contains("f32"));
  CHECK_THROWS_WITH(backend.ops->matmul({ids, Tensor(memory.data(), {3, 4}, DType::i32), false, false, c, false}),
                    Contains("matmul: this backend has no i32"));
  CHECK_THROWS_AS(backend.ops->matmul({a, b, true, false, c, false}), Error);
  CHECK_THROWS_AS(backend.ops->matmul({a, b, false, true, c, false}), Error);
  CHECK_THROWS_AS(backend.ops->matmul({a, b, false, false, c.slice(1, 0, 3), false}), Error);
  CHECK_THROWS_AS(backend.ops->matmul({a, b, false, false, c.slice(0, 0, 1), false}), Error);
}
