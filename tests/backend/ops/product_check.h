// Products of matrices against an fp64 reference, in the middle of memory that they must neither read nor write.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "backend/ops/ops.h"
#include "base/core/half.h"
#include "base/core/philox.h"
#include "support/catch.h"
#include "support/test_backend.h"

namespace megatron::test {

inline std::vector<float> random_values(std::size_t count, std::uint64_t key) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(philox4x32({static_cast<std::uint32_t>(i)}, key)[0]) * 0x1p-31f - 1.0f;
  }
  return values;
}

/// A matrix in the middle of a wider one whose margins are NaN: a wrong stride reads or overwrites them.
template <class T>
struct Framed {
  std::int64_t rows, columns, left, stride;
  TestVector<T> storage;

  Framed(std::int64_t r, std::int64_t c, std::int64_t margin, std::uint64_t key)
      : rows(r), columns(c), left(margin), stride(c + 2 * margin) {
    storage.assign(static_cast<std::size_t>(rows * stride) + 1, narrow<T>(std::numeric_limits<float>::quiet_NaN()));
    const std::vector<float> values = random_values(static_cast<std::size_t>(rows * columns), key);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      at(i / columns, i % columns) = narrow<T>(values[static_cast<std::size_t>(i)]);
    }
  }
  T& at(std::int64_t row, std::int64_t column) {
    return storage[static_cast<std::size_t>(row * stride + left + column)];
  }
  double value(std::int64_t row, std::int64_t column) { return static_cast<double>(wide(at(row, column))); }
  Tensor tensor() { return Tensor(storage.data(), {rows, stride}, DTypeOf<T>::value).slice(1, left, columns); }
  bool margins_intact() {
    std::int64_t numbers = 0;
    for (const T x : storage) numbers += std::isnan(wide(x)) ? 0 : 1;
    return numbers == rows * columns;
  }
};

/// a and b of T, c of Result. multiply(MatmulArgs): what is checked.
template <class T, class Result, class Multiply>
void check_product_by(const Multiply& multiply, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb,
                      bool accumulate, std::int64_t margin) {
  CAPTURE(m, n, k, ta, tb, accumulate, margin);
  Framed<T> a(ta ? k : m, ta ? m : k, margin, 1), b(tb ? n : k, tb ? k : n, margin, 2);
  Framed<Result> c(m, n, margin, 3), before = c;
  if (!accumulate) {
    for (std::int64_t i = 0; i < m * n; ++i)
      c.at(i / n, i % n) = narrow<Result>(std::numeric_limits<float>::quiet_NaN());
  }
  multiply(MatmulArgs{a.tensor(), b.tensor(), ta, tb, c.tensor(), accumulate});
  // A single rounding to Result is allowed for.
  const double unit = std::is_same_v<Result, BFloat16> ? 0x1p-8 : std::is_same_v<Result, Float16> ? 0x1p-11 : 0;
  double worst = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double expected = accumulate ? before.value(i, j) : 0.0;
      for (std::int64_t x = 0; x < k; ++x) {
        expected += (ta ? a.value(x, i) : a.value(i, x)) * (tb ? b.value(j, x) : b.value(x, j));
      }
      const double error = std::abs(expected - c.value(i, j)) - unit * std::abs(expected);
      worst = error > worst || std::isnan(error) ? error : worst;
      if (std::isnan(worst)) break;
    }
  }
  CHECK(worst <= 2e-7 * (4 + static_cast<double>(k)));
  CHECK(c.margins_intact());
}
template <class T = float, class Result = T>
void check_product(Ops& ops, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, bool accumulate,
                   std::int64_t margin) {
  check_product_by<T, Result>([&](const MatmulArgs& args) { ops.matmul(args); }, m, n, k, ta, tb, accumulate, margin);
}

}  // namespace megatron::test
