#include <cmath>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// The heads from `first_head` on of a product [s, b, all_heads · d], of which `pairs` pairs of channels turn.
struct RotaryCase {
  std::int64_t s, b, heads, d, pairs;
  std::int64_t first_head = 1;
  std::int64_t offset = 0;  ///< elements that the product lies off its memory's alignment
  std::int32_t first_position = 0;

  Shape shape() const { return {s, b, (heads + 3) * d}; }
  template <class T>
  Tensor view(Owned<T>& memory) const {
    const Tensor product = memory.tensor().slice(0, offset, shape().elements()).view(shape());
    return product.slice(2, first_head * d, heads * d).split_last(heads);
  }
  /// Index of the first channel of a head, in the memory.
  std::int64_t at(std::int64_t token, std::int64_t head) const {
    return offset + token * shape()[2] + (first_head + head) * d;
  }
};

std::vector<float> frequencies(std::int64_t pairs) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < pairs; ++i) {
    result.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs))));
  }
  return result;
}

/// Positions that start again in the middle of a sample, at a different place in each.
Owned<std::int32_t> restarting_positions(const RotaryCase& c) {
  Owned<std::int32_t> positions({c.s, c.b});
  for (std::int64_t i = 0; i < c.s; ++i) {
    for (std::int64_t sample = 0; sample < c.b; ++sample) {
      const std::int64_t document = c.s / 2 + sample + 1;
      positions[i * c.b + sample] = c.first_position + static_cast<std::int32_t>(i % document);
    }
  }
  return positions;
}

std::vector<double> turned(const RotaryCase& c, std::vector<double> values, const Owned<std::int32_t>& positions,
                           const Owned<float>& frequency, double sign) {
  for (std::int64_t token = 0; token < c.s * c.b; ++token) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      for (std::int64_t i = 0; i < c.pairs; ++i) {
        const double angle = sign * static_cast<double>(positions[token]) * frequency.value(i);
        double& x = values[static_cast<std::size_t>(c.at(token, head) + i)];
        double& y = values[static_cast<std::size_t>(c.at(token, head) + c.pairs + i)];
        const double first = x, second = y;
        x = first * std::cos(angle) - second * std::sin(angle);
        y = second * std::cos(angle) + first * std::sin(angle);
      }
    }
  }
  return values;
}

template <class T>
void check(Ops& ops, const RotaryCase& c) {
  CAPTURE(c.s, c.b, c.heads, c.d, c.pairs, c.offset, c.first_position);
  const Owned<T> x = random_tensor<T>({c.shape().elements() + c.offset}, 1);
  const Owned<std::int32_t> positions = restarting_positions(c);
  const Owned<float> frequency({c.pairs}, frequencies(c.pairs));
  for (const bool inverse : {false, true}) {
    Owned<T> y = x;
    ops.rotary({.x = c.view(y), .positions = positions, .inverse_frequencies = frequency, .inverse = inverse});
    CHECK(difference(y, turned(c, as_doubles(x), positions, frequency, inverse ? -1 : 1), 4e-7) == "");
    // And to the bit what is not to turn: other heads, channels after the pairs.
    for (std::int64_t i = 0; i < c.at(0, 0); ++i) REQUIRE(y[i] == x[i]);
    for (std::int64_t i = 2 * c.pairs; i < c.d; ++i) REQUIRE(y[c.at(0, 0) + i] == x[c.at(0, 0) + i]);
    for (std::int64_t i = 0; i < c.d; ++i) REQUIRE(y[c.at(0, c.heads) + i] == x[c.at(0, c.heads) + i]);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("rotary: turns pairs of a head's two halves by position as in fp64", "", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  for (const RotaryCase& c : {RotaryCase{1, 1, 1, 2, 1}, RotaryCase{7, 2, 3, 33, 5}, RotaryCase{33, 1, 2, 64, 32},
                              RotaryCase{5, 3, 7, 64, 8}, RotaryCase{40, 2, 12, 128, 64}, RotaryCase{3, 2, 2, 80, 16},
                              RotaryCase{3, 1, 2, 1000, 500}, RotaryCase{2, 2, 40, 96, 48}}) {
    for (const std::int64_t offset : {0, 1}) {
      RotaryCase moved = c;
      moved.offset = offset;
      check<TestType>(*backend.ops, moved);
    }
  }
}

TEST_CASE("rotary turns as exactly at the millionth position as at the first") {
  const Backend backend = make_test_backend();
  for (const std::int32_t first : {131071, 131072, 1'000'000, 2'000'000'000}) {
    RotaryCase c{6, 2, 2, 64, 32};
    c.first_position = first;
    check<float>(*backend.ops, c);
  }
}

TEST_CASE("rotary there and back is where it was, and keeps lengths") {
  const Backend backend = make_test_backend();
  const RotaryCase c{33, 2, 4, 64, 32};
  const Owned<float> x = random_tensor({c.shape().elements()}, 1), frequency({c.pairs}, frequencies(c.pairs));
  const Owned<std::int32_t> positions = restarting_positions(c);
  Owned<float> y = x;
  backend.ops->rotary({.x = c.view(y), .positions = positions, .inverse_frequencies = frequency});
  for (std::int64_t i = 0; i < c.pairs; ++i) {
    const std::int64_t at = c.at(9, 1) + i;
    CHECK(std::hypot(y.value(at), y.value(at + c.pairs)) ==
          Approx(std::hypot(x.value(at), x.value(at + c.pairs))).epsilon(1e-6));
  }
  backend.ops->rotary({.x = c.view(y), .positions = positions, .inverse_frequencies = frequency, .inverse = true});
  CHECK(difference(y, x, 5e-7) == "");
}

TEST_CASE("rotary: scores depend only on the distance of queries and keys") {
  const Backend backend = make_test_backend();
  const std::int64_t d = 16;
  const Owned<float> frequency({d / 2}, frequencies(d / 2)), query = random_tensor({d}, 1), key = random_tensor({d}, 2);
  const auto score = [&](std::int32_t query_position, std::int32_t key_position) {
    Owned<float> both({2, 1, 1, d});
    for (std::int64_t i = 0; i < d; ++i) both[i] = query[i], both[d + i] = key[i];
    const Owned<std::int32_t> positions({2, 1}, {query_position, key_position});
    backend.ops->rotary({.x = both, .positions = positions, .inverse_frequencies = frequency});
    double sum = 0;
    for (std::int64_t i = 0; i < d; ++i) sum += both.value(i) * both.value(d + i);
    return sum;
  };
  CHECK(score(5, 2) == Approx(score(100003, 100000)).epsilon(1e-5));
  CHECK(std::abs(score(5, 2) - score(2, 5)) > 1e-3 * std::abs(score(5, 2)));
}

TEST_CASE("rotary of tensors that do not fit together is our own error") {
  const Backend backend = make_test_backend();
  Owned<float> x({3, 2, 4, 8}), flat({24, 8}), frequency({4}), too_many({5});
  Owned<std::int32_t> positions({3, 2}), too_few({3});
  const auto internal = [&](Tensor its_x, ConstTensor its_positions, ConstTensor its_frequencies) {
    try {
      backend.ops->rotary({.x = its_x, .positions = its_positions, .inverse_frequencies = its_frequencies});
    } catch (const Error& error) {
      return error.kind() == ErrorKind::internal;
    }
    return false;
  };
  CHECK_FALSE(internal(x, positions, frequency));
  CHECK(internal(flat, positions, frequency));
  CHECK(internal(x, too_few, frequency));
  CHECK(internal(x, positions, too_many));
  CHECK(internal(x, frequency, frequency));
}
