#include <limits>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "base/core/half.h"
#include "base/core/philox.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {
constexpr std::int64_t kCounts[] = {0, 1, 7, 33, 1000};
}

TEST_CASE("normal variates follow their definition, element by element") {
  const Backend backend = make_test_backend();
  const std::uint64_t key = random_key(1, 2, 3);
  Owned<float> y({10, 103});
  backend.ops->normal({.y = y, .key = key, .deviation = 0.5f, .global_columns = 103});
  std::vector<double> want;
  for (std::uint32_t e = 0; e < 1030; ++e) {
    const PhiloxCounter words = philox4x32<7>({e / 4, 0, 0, 0}, key);
    const std::size_t pair = e % 4 / 2 * 2;
    const double u = (static_cast<double>(words[pair]) + 0.5) / 4294967296.0;
    const double angle = static_cast<double>(words[pair + 1]) * (2 * 3.14159265358979323846 / 4294967296.0);
    want.push_back(0.5 * std::sqrt(-2 * std::log(u)) * (e % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }
  CHECK(difference(y, want, 1e-6) == "");
}

TEST_CASE("a box of a normal matrix is the same numbers as in the whole") {
  const Backend backend = make_test_backend();
  const std::int64_t rows = 9, columns = 301;
  Owned<float> whole({rows, columns});
  backend.ops->normal({.y = whole, .key = 5, .deviation = 0.02f, .global_columns = columns});
  for (const std::int64_t first_row : {0, 4}) {
    for (const std::int64_t first_column : {0, 1, 3, 64, 200}) {
      for (const std::int64_t width : {1, 7, 33, 101}) {
        Owned<float> box({5, width});
        backend.ops->normal({.y = box,
                             .key = 5,
                             .deviation = 0.02f,
                             .first_row = first_row,
                             .first_column = first_column,
                             .global_columns = columns});
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < box.elements(); ++i) {
          if (box[i] != whole[(first_row + i / width) * columns + first_column + i % width]) ++wrong;
        }
        CAPTURE(first_row, first_column, width);
        CHECK(wrong == 0);
      }
    }
  }
  Owned<float> outside({2, 7});
  CHECK_THROWS_AS(backend.ops->normal({.y = outside, .first_column = 296, .global_columns = columns}), Error);
}

TEST_CASE("normal variates: normal moments and other numbers past element 2^34") {
  const Backend backend = make_test_backend();
  const std::int64_t n = 400000;
  Owned<float> y({n});
  backend.ops->normal({.y = y, .key = 11, .deviation = 2, .global_columns = n});
  double moments[5] = {};
  double largest = 0;
  for (const float element : y.values()) {
    const double z = static_cast<double>(element) / 2;
    for (int k = 1; k < 5; ++k) moments[k] += std::pow(z, k) / static_cast<double>(n);
    largest = std::max(largest, std::abs(z));
  }
  // Five standard errors of each.
  const double root = std::sqrt(static_cast<double>(n));
  CHECK(std::abs(moments[1]) < 5 / root);
  CHECK(std::abs(moments[2] - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::abs(moments[3]) < 5 * std::sqrt(15.0) / root);
  CHECK(std::abs(moments[4] - 3) < 5 * std::sqrt(96.0) / root);
  CHECK(largest > 4);
  CHECK(largest < 6.8);

  Owned<float> far({n});
  backend.ops->normal(
      {.y = far, .key = 11, .deviation = 2, .first_row = (std::int64_t{1} << 34) / n + 1, .global_columns = n});
  CHECK_FALSE(far == y);
}

TEST_CASE("fill sets any element type") {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : kCounts) {
    Owned<float> f({n});
    Owned<double> d({n});
    Owned<std::int32_t> i({n});
    Owned<std::uint8_t> u({n});
    backend.ops->fill(f, -1.5);
    backend.ops->fill(d, 0.1);
    backend.ops->fill(i, -7);
    backend.ops->fill(u, 200);
    CHECK(f == Owned<float>({n}, -1.5f));
    CHECK(d == Owned<double>({n}, 0.1));
    CHECK(i == Owned<std::int32_t>({n}, -7));
    CHECK(u == Owned<std::uint8_t>({n}, 200));
  }
  TestVector<std::uint16_t> half(5);
  backend.ops->fill(Tensor(half.data(), {5}, DType::bf16), 1.0);
  CHECK(half == std::vector<std::uint16_t>(5, 0x3F80));
  backend.ops->fill(Tensor(half.data(), {5}, DType::f16), 1.0);
  CHECK(half == std::vector<std::uint16_t>(5, 0x3C00));
}

TEMPLATE_TEST_CASE("add and scale work in place", "", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : kCounts) {
    const auto x = random_tensor<TestType>({n}, 1);
    auto y = random_tensor<TestType>({n}, 2);
    std::vector<double> want;
    for (std::int64_t i = 0; i < n; ++i) want.push_back(x.value(i) + y.value(i));
    backend.ops->add(x, y);
    CHECK(difference(y, want, 1e-7) == "");
    want = as_doubles(y);
    for (double& w : want) w *= 0.7;
    backend.ops->scale(y, 0.7);
    CHECK(difference(y, want, 1e-7) == "");
  }
}

TEST_CASE("f16: what is too large becomes infinity and NaN stays NaN") {
  const Backend backend = make_test_backend();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float values[] = {65504, -65504, 65519, 65520, -1e9f, infinity, std::numeric_limits<float>::quiet_NaN(), 1e-9f};
  Owned<float> x({8}, std::vector<float>(values, values + 8)), back({8});
  Owned<Float16> half({8});
  backend.ops->copy(x, half);
  backend.ops->copy(half, back);
  const float want[] = {65504, -65504, 65504, infinity, -infinity, infinity};
  for (std::int64_t i = 0; i < 6; ++i) CHECK(back[i] == want[i]);
  CHECK(std::isnan(back[6]));
  CHECK(back[7] == 0);
  backend.ops->scale(half, 2);
  CHECK(half.value(0) == std::numeric_limits<double>::infinity());
  CHECK(half.value(1) == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(half.value(6)));
}

TEST_CASE("normal variates of 16-bit parameters are those of f32, rounded") {
  const Backend backend = make_test_backend();
  Owned<float> y({7, 33});
  Owned<BFloat16> half({7, 33}), rounded({7, 33});
  backend.ops->normal({.y = y, .key = 3, .deviation = 0.02f, .first_column = 5, .global_columns = 50});
  backend.ops->normal({.y = half, .key = 3, .deviation = 0.02f, .first_column = 5, .global_columns = 50});
  backend.ops->copy(y, rounded);
  CHECK(half == rounded);
}

TEST_CASE("add and scale work in f64 too") {
  const Backend backend = make_test_backend();
  Owned<double> total({2}, {1, 1e-30});
  backend.ops->add(Owned<double>({2}, {1e-15, 1e-30}), total);
  backend.ops->scale(total, 4);
  CHECK(total[0] == 4 * (1 + 1e-15));
  CHECK(total[1] == Approx(8e-30).margin(0).epsilon(1e-12));
}

TEST_CASE("copy keeps equal types bit by bit and converts between float types") {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : kCounts) {
    const Owned<float> x = random_tensor({n}, 1, 100);
    Owned<float> same({n}), back({n});
    Owned<double> wide({n});
    backend.ops->copy(x, same);
    CHECK(same == x);
    backend.ops->copy(x, wide);
    backend.ops->copy(wide, back);
    CHECK(back == x);
    for (const DType type : {DType::bf16, DType::f16}) {
      CAPTURE(n, name_of(type));
      TestVector<std::uint16_t> half(static_cast<std::size_t>(n) + 1);
      const Tensor view(half.data(), {n}, type);
      backend.ops->copy(x, view);
      backend.ops->copy(view, back);
      const double unit = type == DType::bf16 ? 1.0 / 256 : 1.0 / 2048;
      CHECK(difference(back, x, unit) == "");
      backend.ops->copy(wide, view);
      Owned<double> wide_back({n});
      backend.ops->copy(view, wide_back);
      CHECK(difference(back, as_doubles(wide_back), 0) == "");
    }
    const Owned<std::int32_t> ids = random_ids(n, 1000, 3);
    Owned<std::int32_t> ids_copy({n});
    backend.ops->copy(ids, ids_copy);
    CHECK(ids_copy == ids);
    std::vector<std::int32_t> read(static_cast<std::size_t>(n));
    backend.ops->read(ids, read.data());
    CHECK(std::equal(read.begin(), read.end(), ids.values().begin()));
  }
}

TEST_CASE("16-bit floats: values survive the round trip and ties go to even") {
  std::int64_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const bool nan16 = (bits & 0x7FFF) > 0x7C00, nan_brain = (bits & 0x7FFF) > 0x7F80;
    const float f = to_float(Float16{half}), b = to_float(BFloat16{half});
    if (nan16 ? !std::isnan(f) || !std::isnan(to_float(to_float16(f))) : to_float16(f).bits != half) ++wrong;
    if (nan_brain ? !std::isnan(b) || !std::isnan(to_float(to_bfloat16(b))) : to_bfloat16(b).bits != half) ++wrong;
    if (bits < 0x7BFF) {  // halfway to the next value goes to the even one, a hair more goes up
      const float next = to_float(Float16{static_cast<std::uint16_t>(half + 1)}), middle = (f + next) / 2;
      if (to_float16(middle).bits != half + (half & 1u)) ++wrong;
      if (to_float16(std::nextafter(middle, 1e9f)).bits != half + 1u) ++wrong;
    }
  }
  CHECK(wrong == 0);
  CHECK(to_float(Float16{0x3555}) == Approx(1.0 / 3).epsilon(1e-3));
  CHECK(to_float(Float16{0x0001}) == 0x1p-24f);
  CHECK(to_float(Float16{0x7BFF}) == 65504.0f);
  CHECK(to_float16(65519.0f).bits == 0x7BFF);
  CHECK(to_float16(65520.0f).bits == 0x7C00);
  CHECK(to_float16(1e20f).bits == 0x7C00);
  CHECK(to_float16(-1e-10f).bits == 0x8000);
  CHECK(to_bfloat16(1.0f + 0x1p-8f).bits == 0x3F80);
  CHECK(to_bfloat16(1.0f + 0x1.8p-7f).bits == 0x3F82);
  CHECK(to_bfloat16(std::numeric_limits<float>::max()).bits == 0x7F80);
}

TEMPLATE_TEST_CASE("elementwise: operations on parts that begin anywhere stay inside", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  const std::int64_t n = 100;
  const Owned<T> x = random_tensor<T>({n}, 1);
  for (const std::int64_t first : {0, 1, 4, 8}) {
    for (const std::int64_t count : {1, 7, 64, 90}) {
      CAPTURE(first, count);
      const auto part = [&](Owned<T>& tensor) { return tensor.tensor().slice(0, first, count); };
      Owned<T> source = x, y = x, twice = x, filled = x, narrowed = x;
      Owned<float> widened({n}, 5.0f);
      backend.ops->add(part(source), part(y));
      backend.ops->scale(part(twice), 2);
      backend.ops->fill(part(filled), 3);
      backend.ops->copy(part(source), widened.tensor().slice(0, first, count));
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const bool inside = i >= first && i < first + count;
        const T doubled = narrow<T>(2 * wide(x[i]));
        wrong += !(y[i] == (inside ? doubled : x[i])) + !(twice[i] == (inside ? doubled : x[i])) +
                 !(filled[i] == (inside ? narrow<T>(3.0f) : x[i])) + (widened[i] != (inside ? wide(x[i]) : 5.0f));
      }
      CHECK(wrong == 0);
      backend.ops->fill(narrowed, 0);
      backend.ops->copy(widened.tensor().slice(0, first, count), part(narrowed));
      for (std::int64_t i = first; i < first + count; ++i) REQUIRE(narrowed[i] == x[i]);
    }
  }
}
