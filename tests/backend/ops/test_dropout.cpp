#include "backend/cpu/dropout.h"

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// One element of the mask, straight from the contract in ops.h.
float mask_element(const DropoutRow& row, float probability, std::int64_t index) {
  const PhiloxCounter words =
      philox4x32<7>({static_cast<std::uint32_t>(index / 8), row.position, row.head, row.sample}, row.key);
  const auto lane = static_cast<std::size_t>(index % 8);
  const std::uint32_t draw = (words[lane / 2] >> (16 * (lane % 2))) & 0xFFFFu;
  const auto threshold = static_cast<std::uint32_t>(std::lround(static_cast<double>(probability) * 65536));
  return draw >= threshold ? 65536.0f / static_cast<float>(65536 - threshold) : 0.0f;
}

/// The whole mask, as what dropout makes of ones.
Owned<float> mask_of(const Backend& backend, Shape shape, const Dropout& dropout) {
  const Owned<float> ones(shape, 1.0f);
  Owned<float> y(shape);
  backend.ops->dropout_add_forward({.x = ones, .bias = {}, .residual = {}, .y = y, .dropout = dropout});
  return y;
}

}  // namespace

TEST_CASE("rows of the mask follow the contract from any first index") {
  const DropoutRow row{.key = random_key(1, 2, 3), .position = 1234567, .head = 11, .sample = 99};
  for (const std::int64_t first : {0, 1, 7, 8, 121, 1000}) {
    for (const std::int64_t count : {1, 7, 8, 33, 127, 128, 129, 1000}) {
      std::vector<float> scales(static_cast<std::size_t>(count) + 1, -1.0f);
      dropout_scales(row, DropoutRule(0.3f), first, count, scales.data());
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        if (scales[static_cast<std::size_t>(i)] != mask_element(row, 0.3f, first + i)) ++wrong;
      }
      CAPTURE(first, count);
      CHECK(wrong == 0);
      CHECK(scales.back() == -1.0f);
    }
  }
}

TEST_CASE("the quantised probability keeps the mean, and its ends are exact") {
  CHECK(DropoutRule(0).threshold == 0);
  CHECK(DropoutRule(0).scale == 1);
  CHECK(DropoutRule(0.5f).threshold == 32768);
  CHECK(DropoutRule(0.5f).scale == 2);
  CHECK(DropoutRule(1).scale == 0);
  const DropoutRule rule(0.1f);
  CHECK(static_cast<double>(rule.scale) * (65536.0 - rule.threshold) == Approx(65536).epsilon(1e-6));
}

TEST_CASE("about the right share is kept, in rows, columns and samples alike") {
  const Backend backend = make_test_backend();
  const std::int64_t s = 40, b = 8, h = 1000;
  const Owned<std::int32_t> positions = counting_ids(s);
  const Dropout dropout{.probability = 0.1f, .key = random_key(5, 6, 7), .positions = positions};
  const Owned<float> mask = mask_of(backend, {s, b, h}, dropout);
  std::int64_t dropped = 0, neighbours = 0;
  for (std::int64_t i = 0; i < mask.elements(); ++i) {
    dropped += mask[i] == 0;
    neighbours += i > 0 && mask[i] == 0 && mask[i - 1] == 0;
  }
  // Six standard deviations of a binomial distribution.
  const auto n = static_cast<double>(mask.elements());
  CHECK(std::abs(static_cast<double>(dropped) - 0.1 * n) < 6 * std::sqrt(n * 0.1 * 0.9));
  CHECK(std::abs(static_cast<double>(neighbours) - 0.01 * n) < 6 * std::sqrt(n * 0.01 * 0.99));
  Dropout another = dropout;
  another.key = random_key(5, 7, 7);
  CHECK_FALSE(mask_of(backend, {s, b, h}, another) == mask);
}

TEST_CASE("dropout: the mask follows the contract in every row and sample") {
  const Backend backend = make_test_backend();
  for (const std::int64_t h : {64, 37}) {
    const std::int64_t s = 50, b = 7;
    const Owned<std::int32_t> positions = counting_ids(s, 3);
    const Dropout dropout{.probability = 0.3f, .key = 77, .positions = positions, .first_sample = 1000};
    const Owned<float> mask = mask_of(backend, {s, b, h}, dropout);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < mask.elements(); ++i) {
      const DropoutRow row{.key = 77,
                           .position = static_cast<std::uint32_t>(3 + i / (b * h)),
                           .head = 0,
                           .sample = static_cast<std::uint32_t>(1000 + i / h % b)};
      if (mask[i] != mask_element(row, 0.3f, i % h)) ++wrong;
    }
    CAPTURE(h);
    CHECK(wrong == 0);
  }
}

TEST_CASE("dropout: the mask does not depend on the part that a rank holds") {
  const Backend backend = make_test_backend();
  const std::int64_t s = 12, b = 6, h = 37;
  const Owned<std::int32_t> positions = counting_ids(s, 100);
  const Dropout whole{.probability = 0.4f, .key = 42, .positions = positions, .first_sample = 10};
  const Owned<float> mask = mask_of(backend, {s, b, h}, whole);
  for (const std::int64_t first_row : {0, 4, 8}) {
    for (const std::int64_t first_column : {0, 2, 4}) {
      Dropout part = whole;
      part.positions = positions.tensor().slice(0, first_row, 4);
      part.first_sample = 10 + first_column;
      const Owned<float> got = mask_of(backend, {4, 2, h}, part);
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < got.elements(); ++i) {
        const std::int64_t row = first_row + i / (2 * h), column = first_column + i / h % 2;
        if (got[i] != mask[(row * b + column) * h + i % h]) ++wrong;
      }
      CAPTURE(first_row, first_column);
      CHECK(wrong == 0);
    }
  }
}

TEMPLATE_TEST_CASE("dropout_add: forward and backward follow the mask with all options", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const std::int64_t h : {1, 7, 33, 1000, 2050}) {
    for (const float probability : {0.0f, 0.25f}) {
      for (const bool with_bias : {false, true}) {
        for (const bool with_residual : {false, true}) {
          CAPTURE(h, probability, with_bias, with_residual);
          const Shape shape{3, 2, h};
          const Owned<std::int32_t> positions = counting_ids(3, 5);
          const Dropout dropout{.probability = probability, .key = 9, .positions = positions, .first_sample = 3};
          const Owned<float> mask = mask_of(backend, shape, dropout);
          const Owned<T> x = random_tensor<T>(shape, 1), bias = random_tensor<T>({h}, 2);
          Owned<T> residual = random_tensor<T>(shape, 3), y = random_tensor<T>(shape, 4);
          std::vector<double> want, want_dx, want_dbias(static_cast<std::size_t>(h), 1.0);
          for (std::int64_t i = 0; i < x.elements(); ++i) {
            const double sum = with_bias ? x.value(i) + bias.value(i % h) : x.value(i);
            want.push_back(sum * static_cast<double>(mask[i]) + (with_residual ? residual.value(i) : 0.0));
            want_dx.push_back(x.value(i) * static_cast<double>(mask[i]));
            // The bias's gradient is the sum of dx as it is stored.
            want_dbias[static_cast<std::size_t>(i % h)] +=
                2 * static_cast<double>(wide(narrow<T>(static_cast<float>(want_dx.back()))));
          }
          DropoutAddForwardArgs forward{.x = x, .bias = {}, .residual = {}, .y = y, .dropout = dropout};
          if (with_bias) forward.bias = bias;
          if (with_residual) forward.residual = residual;
          backend.ops->dropout_add_forward(forward);
          CHECK(difference(y, want, 2e-7) == "");
          Owned<T> over_x = x;
          forward.x = over_x, forward.y = over_x;
          backend.ops->dropout_add_forward(forward);
          CHECK(over_x == y);
          if (with_residual) {
            forward.x = x, forward.y = residual;
            backend.ops->dropout_add_forward(forward);
            CHECK(residual == y);
          }

          Owned<T> dx = random_tensor<T>(shape, 5), in_place = x;
          Owned<float> dbias({h}, 1.0f);
          backend.ops->dropout_add_backward({.dy = x, .dx = dx, .dbias = dbias, .dropout = dropout});
          backend.ops->dropout_add_backward({.dy = x, .dx = dx, .dbias = dbias, .dropout = dropout});
          CHECK(difference(dx, want_dx, 2e-7) == "");
          CHECK(difference(dbias, want_dbias, 1e-6) == "");
          backend.ops->dropout_add_backward({.dy = in_place, .dx = in_place, .dbias = {}, .dropout = dropout});
          CHECK(in_place == dx);
        }
      }
    }
  }
}
