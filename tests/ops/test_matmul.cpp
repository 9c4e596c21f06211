#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/philox.h"
#include "ops/device.h"
#include "ops/ops.h"

using namespace megatron;

namespace {

std::vector<float> random_values(std::size_t count, std::uint64_t key) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(philox4x32({static_cast<std::uint32_t>(i)}, key)[0]) * 0x1p-31f - 1.0f;
  }
  return values;
}

/// A matrix in the middle of a wider one whose margins are NaN: a wrong stride reads or overwrites them.
struct Framed {
  std::int64_t rows, columns, left, stride;
  std::vector<float> storage;

  Framed(std::int64_t r, std::int64_t c, std::int64_t margin, std::uint64_t key)
      : rows(r), columns(c), left(margin), stride(c + 2 * margin) {
    storage.assign(static_cast<std::size_t>(rows * stride) + 1, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> values = random_values(static_cast<std::size_t>(rows * columns), key);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      at(i / columns, i % columns) = values[static_cast<std::size_t>(i)];
    }
  }
  float& at(std::int64_t row, std::int64_t column) {
    return storage[static_cast<std::size_t>(row * stride + left + column)];
  }
  Tensor tensor() { return Tensor(storage.data(), {rows, stride}, DType::f32).slice(1, left, columns); }
  bool margins_intact() {
    std::int64_t numbers = 0;
    for (const float x : storage) numbers += std::isnan(x) ? 0 : 1;
    return numbers == rows * columns;
  }
};

void check_product(Ops& ops, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, bool accumulate,
                   std::int64_t margin) {
  CAPTURE(m, n, k, ta, tb, accumulate, margin);
  Framed a(ta ? k : m, ta ? m : k, margin, 1), b(tb ? n : k, tb ? k : n, margin, 2), c(m, n, margin, 3);
  Framed before = c;
  if (!accumulate) {
    for (std::int64_t i = 0; i < m * n; ++i) c.at(i / n, i % n) = std::numeric_limits<float>::quiet_NaN();
  }
  ops.matmul({a.tensor(), b.tensor(), ta, tb, c.tensor(), accumulate});
  double worst = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double expected = accumulate ? double{before.at(i, j)} : 0.0;
      for (std::int64_t x = 0; x < k; ++x) {
        expected += double{ta ? a.at(x, i) : a.at(i, x)} * double{tb ? b.at(j, x) : b.at(x, j)};
      }
      const double error = std::abs(expected - double{c.at(i, j)});
      worst = error > worst || std::isnan(error) ? error : worst;
      if (std::isnan(worst)) break;
    }
  }
  CHECK(worst <= 2e-7 * (4 + static_cast<double>(k)));
  CHECK(c.margins_intact());
}

std::ptrdiff_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

}  // namespace

TEST_CASE("matmul: every transpose, setting and adding, awkward sizes, strided", "[matmul]") {
  const Backend backend = make_cpu_backend();
  const std::int64_t sizes[][3] = {{1, 1, 1},    {7, 1, 33},    {1, 33, 7},    {33, 7, 129},
                                   {129, 33, 1}, {33, 129, 33}, {64, 48, 300}, {1, 300, 129}};
  for (const auto& size : sizes) {
    for (int bits = 0; bits < 16; ++bits) {
      check_product(*backend.ops, size[0], size[1], size[2], (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0,
                    (bits & 8) != 0 ? 3 : 0);
    }
  }
}

TEST_CASE("matmul with an extent of zero", "[matmul]") {
  const Backend backend = make_cpu_backend();
  for (int bits = 0; bits < 8; ++bits) {
    const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, accumulate = (bits & 4) != 0;
    check_product(*backend.ops, 7, 5, 0, ta, tb, accumulate, 2);  // c becomes 0, or stays
    check_product(*backend.ops, 0, 5, 3, ta, tb, accumulate, 2);
    check_product(*backend.ops, 7, 0, 3, ta, tb, accumulate, 2);
  }
}

TEST_CASE("matmul refuses what it cannot do", "[matmul]") {
  const Backend backend = make_cpu_backend();
  std::vector<float> memory(64);
  const Tensor a(memory.data(), {2, 3}, DType::f32), b(memory.data() + 16, {3, 4}, DType::f32);
  const Tensor c(memory.data() + 32, {2, 4}, DType::f32), half(memory.data() + 16, {3, 4}, DType::bf16);
  try {
    backend.ops->matmul({a, half, false, false, c, false});
    FAIL("multiplied bf16");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::configuration);
    CHECK(std::string(error.what()).find("matmul") != std::string::npos);
    CHECK(std::string(error.what()).find("bf16") != std::string::npos);
  }
  CHECK_THROWS_AS(backend.ops->matmul({a, b, true, false, c, false}), Error);
  CHECK_THROWS_AS(backend.ops->matmul({a, b, false, true, c, false}), Error);
  CHECK_THROWS_AS(backend.ops->matmul({a, b, false, false, c.slice(1, 0, 3), false}), Error);
  CHECK_THROWS_AS(backend.ops->matmul({a, b, false, false, c.slice(0, 0, 1), false}), Error);
}

TEST_CASE("matmul stays on the calling thread, in every rank that is a thread", "[matmul]") {
  constexpr std::int64_t n = 384;
  const std::vector<float> values = random_values(n * n, 5);
  const ConstTensor x(values.data(), {n, n}, DType::f32);
  std::vector<float> results[3];
  std::ptrdiff_t started[3] = {};
  const auto multiply = [&](int rank) {
    const Backend backend = make_cpu_backend();
    results[rank].resize(n * n);
    const std::ptrdiff_t before = threads_of_process();
    for (int i = 0; i < 3; ++i) {
      backend.ops->matmul({x, x, false, true, Tensor(results[rank].data(), {n, n}, DType::f32), false});
    }
    started[rank] = threads_of_process() - before;
  };
  multiply(0);
  CHECK(started[0] == 0);
  std::thread first(multiply, 1);
  first.join();
  CHECK(started[1] == 0);
  std::thread second(multiply, 1), third(multiply, 2);
  second.join();
  third.join();
  CHECK(std::memcmp(results[0].data(), results[1].data(), sizeof(float) * n * n) == 0);
  CHECK(std::memcmp(results[0].data(), results[2].data(), sizeof(float) * n * n) == 0);
}
