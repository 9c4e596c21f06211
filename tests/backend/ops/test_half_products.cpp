// Products of bf16 by the processor's own instructions: every kind that this one has, and which is chosen on others.
#include "backend/cpu/half_products.h"

#include <algorithm>

#include "backend/cpu/native_gemm.h"
#include "backend/ops/product_check.h"
#include "backend/ops/products_here.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("native 16 bits: the choice follows the processor's features") {
  constexpr ProcessorFeatures none, intel{.avx512_bf16 = true}, amd{.avx512_bf16 = true, .fast_pairs = true},
      units{.amx_bf16 = true, .avx512_bf16 = true};
  const auto automatic = [](const ProcessorFeatures& features) {
    return choose_half_products(Native16Bit::automatic, features);
  };
  CHECK(automatic(none) == HalfProducts::widened);
  CHECK(automatic(intel) == HalfProducts::widened);  // at half the rate of f32
  CHECK(automatic(amd) == HalfProducts::avx512_bf16);
  CHECK(automatic(units) == HalfProducts::amx_bf16);
  CHECK(choose_half_products(Native16Bit::on, intel) == HalfProducts::avx512_bf16);
  CHECK(choose_half_products(Native16Bit::on, units) == HalfProducts::amx_bf16);
  CHECK(choose_half_products(Native16Bit::off, units) == HalfProducts::widened);
  CHECK_THROWS_WITH(choose_half_products(Native16Bit::on, none),
                    Contains("neither amx_bf16 nor avx512_bf16") && Contains("\"auto\" or \"off\""));
}

TEST_CASE("native 16 bits: a plan measures what the run will use, if it can") {
  constexpr ProcessorFeatures none, intel{.avx512_bf16 = true}, units{.amx_bf16 = true, .avx512_bf16 = true};
  CHECK(possible_native_16bit(Native16Bit::on, intel) == Native16Bit::on);  // "auto" would widen there
  CHECK(possible_native_16bit(Native16Bit::on, units) == Native16Bit::on);
  CHECK(possible_native_16bit(Native16Bit::on, none) == Native16Bit::automatic);
  CHECK(possible_native_16bit(Native16Bit::off, units) == Native16Bit::off);
  CHECK(possible_native_16bit(Native16Bit::automatic, none) == Native16Bit::automatic);
}

TEST_CASE("native 16 bits: every transpose, setting and adding, awkward sizes") {
  check_each([](Ops& ops) {
    const std::int64_t sizes[][3] = {{1, 1, 1},    {7, 1, 33},   {33, 7, 129},  {64, 48, 300}, {1, 300, 129},
                                     {33, 97, 32}, {17, 49, 31}, {50, 15, 385}, {16, 112, 800}};
    for (const auto& [m, n, k] : sizes) {
      for (int bits = 0; bits < 16; ++bits) {
        const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, add = (bits & 4) != 0;
        const std::int64_t margin = (bits & 8) != 0 ? 3 : 0;
        check_product<BFloat16>(ops, m, n, k, ta, tb, add, margin);
        check_product<BFloat16, float>(ops, m, n, k, ta, tb, add, margin);
      }
    }
  });
}

TEST_CASE("native 16 bits: blocks, slices and parts in every direction") {
  check_each([](Ops& ops) {
    for (int bits = 0; bits < 4; ++bits) {
      const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, add = ta != tb;
      check_product<BFloat16>(ops, 1601, 7, 33, ta, tb, add, 1);
      check_product<BFloat16>(ops, 7, 1600, 5, ta, tb, add, 1);
      check_product<BFloat16>(ops, 33, 17, 3100, ta, tb, add, 1);
      check_product<BFloat16, float>(ops, 35, 17, 3100, ta, tb, add, 1);
      check_product<BFloat16>(ops, 300, 800, 400, ta, tb, add, 0);
      check_product<BFloat16>(ops, 300, 800, 800, ta, tb, add, 0);
      check_product<BFloat16, float>(ops, 1600, 20, 400, ta, tb, add, 1);
    }
  });
}

TEST_CASE("native 16 bits: an extent of zero") {
  check_each([](Ops& ops) {
    for (int bits = 0; bits < 8; ++bits) {
      const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, add = (bits & 4) != 0;
      check_product<BFloat16>(ops, 7, 5, 0, ta, tb, add, 2);  // c becomes 0, or stays
      check_product<BFloat16, float>(ops, 7, 5, 0, ta, tb, add, 2);
      check_product<BFloat16>(ops, 0, 5, 3, ta, tb, add, 2);
      check_product<BFloat16>(ops, 7, 0, 3, ta, tb, add, 2);
    }
  });
}

TEST_CASE("native 16 bits: infinities, NaN and overflow as widened products have") {
  check_each([](Ops& ops) {
    const auto multiply = [&](float x, float y) {
      Owned<BFloat16> a({40, 40}, to_bfloat16(0)), b({40, 40}, to_bfloat16(0)), c({40, 40});
      a[39] = to_bfloat16(x);       // row 0
      b[39 * 40] = to_bfloat16(y);  // column 0
      ops.matmul({.a = a, .b = b, .c = c});
      CHECK(wide(c[41]) == 0);  // its row and column hold no other number
      return wide(c[0]);
    };
    constexpr float infinity = std::numeric_limits<float>::infinity();
    CHECK(multiply(infinity, -2) == -infinity);
    CHECK(std::isnan(multiply(infinity, 0)));
    CHECK(std::isnan(multiply(std::numeric_limits<float>::quiet_NaN(), 1)));
    CHECK(multiply(0x1p64f, 0x1p64f) == infinity);
    CHECK(multiply(0x1p64f, -0x1p64f) == -infinity);
    CHECK(multiply(0x1p127f, 0x1p-127f) == (multiply(0x1p-127f, 1) == 0 ? 0.0f : 1.0f));  // subnormal: 0, or kept
  });
}

TEMPLATE_TEST_CASE("native 16 bits: an element's bits follow from its row and column", "", float, BFloat16) {
  constexpr std::int64_t m = 300, n = 140, k = 1501;
  const auto a = random_tensor<BFloat16>({m, k}, 1), b = random_tensor<BFloat16>({k, n}, 2);
  const auto before = random_tensor<TestType>({m, n}, 3);
  const bool adds = GENERATE(false, true);
  const auto product = [&](Ops& ops, const ConstTensor& rows, const ConstTensor& columns, Owned<TestType> c) {
    ops.matmul({.a = rows, .b = columns, .c = c, .accumulate = adds});
    return c;
  };
  CpuDevice device;
  for (const HalfProducts products : products_here()) {
    if (products == HalfProducts::widened) continue;
    INFO(name_of(products));
    CpuOps ops(device, 1, products);
    const Owned<TestType> whole = product(ops, a, b, before);
    for (const auto& [row, column] : {std::pair{0, 0}, {17, 5}, {299, 139}, {255, 96}}) {
      const Owned<TestType> one = product(ops, ConstTensor(a).slice(0, row, 1), ConstTensor(b).slice(1, column, 1),
                                          Owned<TestType>({1, 1}, before[row * n + column]));
      CHECK(one.value(0) == whole.value(row * n + column));
    }
    for (const int threads : {2, 3}) {
      CpuOps several(device, threads, products);
      CHECK(product(several, a, b, before) == whole);
    }
  }
}

namespace {

/// c = a · bᵀ of a few rows, by these instructions whether or not the backend would take them for so few.
template <class Result>
void multiply_few_rows(HalfProducts products, const MatmulArgs& args) {
  const ProductSize size{args.a.dim(0), args.b.dim(0), args.a.dim(1)};
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const std::size_t bytes = native_few_rows_bytes(size);
  CHECK(bytes % sizeof(Line) == 0);
  std::vector<Line> memory(bytes / sizeof(Line) + 1);
  memory.back().bytes[0] = std::byte{7};
  native_few_rows(products, size, {args.a.as<BFloat16>(), args.a.stride(0), false},
                  {args.b.as<BFloat16>(), args.b.stride(0), true}, args.c.as<Result>(), args.c.stride(0),
                  args.accumulate, memory.front().bytes);
  CHECK(memory.back().bytes[0] == std::byte{7});
}

}  // namespace

TEMPLATE_TEST_CASE("native 16 bits: few rows, in whole tiles and others", "", float, BFloat16) {
  for (const HalfProducts products : require_native_products()) {
    INFO(name_of(products));
    const auto multiply = [&](const MatmulArgs& args) { multiply_few_rows<TestType>(products, args); };
    for (const std::int64_t m : {1, 3, 15, 16, 17, 31, 32}) {
      for (const std::int64_t n : {1, 16, 31, 32, 33, 64, 150}) {
        for (const std::int64_t k : {0, 1, 32, 50, 256, 288, 600}) {
          check_product_by<BFloat16, TestType>(multiply, m, n, k, false, true, (m + n) % 2 == 0, n % 3);
        }
      }
    }
  }
}

TEST_CASE("native 16 bits: few rows have the bits of one row") {
  for (const HalfProducts products : require_native_products()) {
    INFO(name_of(products));
    constexpr std::int64_t m = 32, n = 89, k = 1501;
    Framed<BFloat16> a(m, k, 0, 1), b(n, k, 0, 2);
    Framed<float> alone(m, n, 0, 3);
    const auto multiply = [&](std::int64_t first, std::int64_t rows, Tensor c) {
      multiply_few_rows<float>(products, {a.tensor().slice(0, first, rows), b.tensor(), false, true, c, false});
    };
    for (std::int64_t row = 0; row < m; ++row) multiply(row, 1, alone.tensor().slice(0, row, 1));
    for (const std::int64_t rows : {2, 16, 23, 32}) {
      Framed<float> c(rows, n, 0, 3);
      multiply(m - rows, rows, c.tensor());
      CAPTURE(rows);
      CHECK(std::equal(c.storage.begin(), c.storage.begin() + rows * n, alone.storage.begin() + (m - rows) * n));
    }
  }
}
