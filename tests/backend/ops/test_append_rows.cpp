// Rows written at each sample's own offset: only those rows, between any strides.
#include <algorithm>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

TEMPLATE_TEST_CASE("append_rows: each sample at its offset, nothing else", "[append_rows]", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const std::int64_t s = 3, b = 4, heads = 2, d = 5, capacity = 9;
  // x: the middle heads of a wider product. y: samples and heads outermost, as a cache has them.
  Owned<TestType> x = random_tensor<TestType>({s, b, (heads + 2) * d}, 1);
  const Owned<TestType> before = random_tensor<TestType>({b, heads, capacity, d}, 2);
  Owned<TestType> y = before;
  const Owned<std::int32_t> offsets({b}, std::vector<std::int32_t>{0, 4, 6, 8});
  backend.ops->append_rows({.x = x.tensor().slice(2, d, heads * d).split_last(heads),
                            .offsets = offsets,
                            .y = y.tensor().swapped(0, 2).swapped(1, 2)});
  std::int64_t written = 0;
  for (std::int64_t sample = 0; sample < b; ++sample) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t at = 0; at < capacity; ++at) {
        const std::int64_t row = at - offsets[sample];
        for (std::int64_t i = 0; i < d; ++i) {
          const std::int64_t place = ((sample * heads + head) * capacity + at) * d + i;
          const bool new_row = row >= 0 && row < s;
          written += new_row ? 1 : 0;
          const TestType want = new_row ? x[(row * b + sample) * (heads + 2) * d + (head + 1) * d + i] : before[place];
          REQUIRE(y[place] == want);
        }
      }
    }
  }
  CHECK(written == (3 + 3 + 3 + 1) * heads * d);  // the last sample has room for one
}

TEMPLATE_TEST_CASE("append_rows: without offsets copies between strides", "[append_rows]", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const std::int64_t s = 3, b = 2, heads = 2, d = 5;
  Owned<TestType> x = random_tensor<TestType>({s, b, (heads + 1) * d}, 1);
  const Owned<TestType> before = random_tensor<TestType>({s, b, 2 * heads * d}, 2);
  Owned<TestType> y = before;
  backend.ops->append_rows({.x = x.tensor().slice(2, d, heads * d).split_last(heads),
                            .offsets = {},
                            .y = y.tensor().slice(2, heads * d, heads * d).split_last(heads)});
  for (std::int64_t row = 0; row < s * b; ++row) {
    for (std::int64_t i = 0; i < 2 * heads * d; ++i) {
      const std::int64_t place = row * 2 * heads * d + i;
      const bool copied = i >= heads * d;
      REQUIRE(y[place] == (copied ? x[row * (heads + 1) * d + d + i - heads * d] : before[place]));
    }
  }
}
