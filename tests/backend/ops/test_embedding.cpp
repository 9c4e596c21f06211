#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

TEMPLATE_TEST_CASE("embedding_forward looks up, and gives zero for rows of other ranks", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const std::int64_t h : {1, 7, 33, 1000}) {
    const std::int64_t vocabulary = 12, n = 33;
    const Owned<T> weight = random_tensor<T>({vocabulary, h}, 1);
    const Owned<std::int32_t> ids = random_ids(n, vocabulary, 2);
    std::vector<double> want;
    for (std::int64_t i = 0; i < n * h; ++i) want.push_back(weight.value(ids[i / h] * h + i % h));
    Owned<T> y = random_tensor<T>({n, h}, 3);
    backend.ops->embedding_forward({.ids = ids, .weight = weight, .first_row = 0, .y = y, .accumulate = false});
    CHECK(difference(y, want, 0) == "");

    // The ranks' parts add up to the whole, whatever was there before is overwritten by the first.
    Owned<T> summed = random_tensor<T>({n, h}, 4);
    for (std::int64_t first = 0; first < vocabulary; first += 4) {
      backend.ops->embedding_forward({.ids = ids,
                                      .weight = weight.tensor().slice(0, first, 4),
                                      .first_row = first,
                                      .y = summed,
                                      .accumulate = first > 0});
    }
    CHECK(summed == y);
    backend.ops->embedding_forward({.ids = ids, .weight = weight, .first_row = 1000, .y = y, .accumulate = false});
    CHECK(difference(y, std::vector<double>(static_cast<std::size_t>(n * h)), 0) == "");
  }
}

TEMPLATE_TEST_CASE("embedding_backward: adds also for repeated ids and only to local rows", "", float, BFloat16,
                   Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const std::int64_t h : {1, 7, 33}) {
    const std::int64_t vocabulary = 12, n = 100;
    const Owned<std::int32_t> ids = random_ids(n, vocabulary, 2);
    const Owned<T> dy = random_tensor<T>({n, h}, 3);
    Owned<float> dweight({vocabulary, h}, 1.0f);
    std::vector<double> want(static_cast<std::size_t>(vocabulary * h), 1.0);
    for (std::int64_t i = 0; i < n * h; ++i) want[static_cast<std::size_t>(ids[i / h] * h + i % h)] += 2 * dy.value(i);
    for (int times = 0; times < 2; ++times) {
      for (std::int64_t first = 0; first < vocabulary; first += 6) {
        backend.ops->embedding_backward(
            {.ids = ids, .dy = dy, .first_row = first, .dweight = dweight.tensor().slice(0, first, 6)});
      }
    }
    CHECK(difference(dweight, want, 1e-6) == "");
  }
}

TEMPLATE_TEST_CASE("embedding_backward: adds in order of i to the last bit", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  struct Case {
    std::int64_t vocabulary, n, h;
  };
  for (const Case c :
       {Case{300, 5000, 32}, Case{70000, 3000, 20}, Case{3, 100, 1100}, Case{300, 2049, 7}, Case{600, 18000, 4}}) {
    CAPTURE(c.vocabulary, c.n, c.h);
    Owned<std::int32_t> ids = random_ids(c.n, c.vocabulary, 2);
    for (std::int64_t i = 0; i < c.n; i += 3) ids[i] = static_cast<std::int32_t>(c.vocabulary / 2);
    const Owned<T> dy = random_tensor<T>({c.n, c.h}, 3);
    const std::int64_t first_row = c.vocabulary / 4, rows = c.vocabulary / 2;  // ids of other ranks on both sides
    Owned<float> dweight = random_tensor({rows, c.h}, 4), want = dweight;
    for (std::int64_t i = 0; i < c.n; ++i) {
      const std::int64_t row = ids[i] - first_row;
      if (row < 0 || row >= rows) continue;
      for (std::int64_t j = 0; j < c.h; ++j) want[row * c.h + j] += wide(dy[i * c.h + j]);
    }
    backend.ops->embedding_backward({.ids = ids, .dy = dy, .first_row = first_row, .dweight = dweight});
    CHECK(dweight == want);
  }
}
