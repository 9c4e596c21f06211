// Attention with T5's learned bias by the bucket of the distance, and the gradient of that bias.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "backend/ops/ops.h"
#include "support/attention_check.h"
#include "support/attention_reference.h"
#include "support/attention_run.h"
#include "support/catch.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {
/// Probabilities are less even with a bias, and rounded on their way to the gradients of queries and keys.
template <class T>
constexpr double kRounding = std::is_same_v<T, float> ? kTolerance<T> : 1.5 * kTolerance<T>;
}  // namespace

TEST_CASE("attention with a bias of distances: every mask at awkward sizes", "[attention][distances]") {
  const Backend backend = make_test_backend();
  const std::int64_t sizes[][4] = {{1, 1, 1, 8}, {7, 2, 3, 16}, {33, 3, 2, 5}, {129, 1, 2, 24}};
  for (const auto& size : sizes) {
    for (const AttentionCase& unbiased : masked_cases(size[0], size[1], size[2], size[3])) {
      AttentionCase c = biased(unbiased);
      check_case(*backend.ops, c);
      add_dropout(c, 0.3);
      check_case(*backend.ops, c);
    }
  }
}

TEMPLATE_TEST_CASE("attention with a bias of distances, of 16-bit elements: every mask", "[attention][distances]",
                   BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const std::int64_t sizes[][4] = {{11, 2, 3, 16}, {33, 3, 2, 5}, {140, 1, 2, 64}, {70, 1, 1, 128}};
  for (const auto& size : sizes) {
    for (const AttentionCase& unbiased : masked_cases(size[0], size[1], size[2], size[3])) {
      AttentionCase c = biased(unbiased);
      c.left_margin = c.right_margin = size[3] >= 64 ? 8 : 3;
      check_case<TestType>(*backend.ops, c, kRounding<TestType>);
      add_dropout(c, 0.3);
      check_case<TestType>(*backend.ops, c, kRounding<TestType>);
    }
  }
}

TEMPLATE_TEST_CASE("attention with a bias of distances: lengths and groups and offsets", "[attention][distances]",
                   float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const auto check = [&](const AttentionCase& c) { check_case<TestType>(*backend.ops, c, kRounding<TestType>); };
  for (const std::int64_t size : {16, 64}) {
    for (const bool causal : {true, false}) {
      for (const DistanceBuckets buckets : {DistanceBuckets{}, DistanceBuckets{.buckets = 64, .max_distance = 400},
                                            DistanceBuckets{.buckets = 4, .max_distance = 3}}) {
        if (size == 64 && buckets.buckets != 32) continue;  // other rules once: an emulated GPU takes long
        AttentionCase c = plain(45, 2, 2, size, causal);
        c.keys = 150;
        c.left_margin = c.right_margin = size == 16 ? 3 : 8;
        check(biased(c, buckets));
        c.key_heads = 1;
        c.query_offset = 100;
        check(biased(c, buckets));
        c.offset_step = 37;
        check(biased(c, buckets));
        c.key_lengths = {111, 3};
        check(biased(c, buckets));
        AttentionCase other_rule = biased(c, buckets);  // keys ahead of a query that have one bucket, or several
        other_rule.buckets.bidirectional = causal;
        check(other_rule);
        c.keys = 40;
        c.query_offset = c.offset_step = 0;
        c.key_lengths.clear();
        check(biased(c, buckets));
      }
    }
  }
}

TEMPLATE_TEST_CASE("attention with a bias of distances: few queries over many keys", "[attention][distances]", float,
                   BFloat16, Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t queries : {1, 2, 4, 5}) {
    AttentionCase c = plain(queries, 3, 4, 16);
    c.keys = 277;
    c.key_heads = 2;
    c.query_offset = 150;
    check_case<TestType>(*backend.ops, biased(c, {}), kRounding<TestType>);
    c.offset_step = 60;
    check_case<TestType>(*backend.ops, biased(c, {}), kRounding<TestType>);
    c.slopes = {0.0625f, 0.03125f, -0.03125f, 0.015625f};
    c.causal = false;
    c.key_lengths = {1, 277, 40};
    check_case<TestType>(*backend.ops, biased(c, {}), kRounding<TestType>);
  }
}

TEST_CASE("attention with a bias of distances: sequences of several tiles of keys", "[attention][distances]") {
  const Backend backend = make_test_backend();
  check_case(*backend.ops, biased(plain(1100, 1, 1, 16, false), {}));
  check_case(*backend.ops, biased(plain(600, 1, 1, 16), {}));
  check_case<BFloat16>(*backend.ops, biased(plain(400, 1, 1, 64, false), {}), kRounding<BFloat16>);
  check_case<BFloat16>(*backend.ops, biased(plain(80, 2, 2, 136, false), {}), kRounding<BFloat16>);
}

TEST_CASE("attention with a bias of distances: a constant bias changes nothing", "[attention][distances]") {
  const Backend backend = make_test_backend();
  AttentionCase c = biased(plain(40, 1, 2, 8, false), {});
  Inputs<> x(c);
  std::fill(x.bias.begin(), x.bias.end(), 3.0);
  Run<> run(c, x);
  run.execute(*backend.ops);
  AttentionCase without = c;
  without.biased = false;
  CHECK(relative_error(run.out.values(), reference_attention(without, x.q, x.k, x.v, {}).out) < 2e-6);

  // Every query looks at the key three behind it.
  std::fill(x.bias.begin(), x.bias.end(), 0.0);
  for (std::int64_t head = 0; head < c.heads; ++head) x.bias[static_cast<std::size_t>(head * 32 + 3)] = 200;
  Run<> moved(c, x);
  moved.execute(*backend.ops);
  const std::vector<double> out = moved.out.values();
  for (std::int64_t i = 3; i < c.queries; ++i) CHECK(out[c.at_query(i, 0, 1)] == Approx(x.v[c.at_key(i - 3, 0, 1)]));
}

TEST_CASE("attention with a bias of distances: reference gradients are its slopes", "[attention][distances]") {
  AttentionCase c = plain(9, 2, 4, 5);
  c.keys = 13;
  c.key_heads = 2;
  c.window = 6;
  c.query_offset = 2;
  c.offset_step = 1;
  c = biased(c, {.buckets = 6, .max_distance = 8});
  add_dropout(c, 0.3);
  Inputs<> x(c);
  check_reference_slopes(c, x);
}

TEMPLATE_TEST_CASE("attention with a bias of distances: repeatable and optional gradient", "[attention][distances]",
                   float, BFloat16) {
  const Backend backend = make_test_backend();
  AttentionCase c = biased(plain(150, 3, 4, 64, false), {});
  c.key_heads = 2;
  add_dropout(c, 0.1);
  const Inputs<TestType> x(c);
  Run<TestType> first(c, x), second(c, x), without(c, x);
  first.execute(*backend.ops);
  check_case(*backend.ops, plain(200, 1, 1, 80));  // leaves other numbers in the scratch memory
  second.execute(*backend.ops);
  CHECK(std::memcmp(first.dbias.data(), second.dbias.data(), first.dbias.size() * sizeof(float)) == 0);
  without.wants_dbias = false;
  without.execute(*backend.ops);
  CHECK(without.dq.values() == first.dq.values());
  CHECK(without.dk.values() == first.dk.values());
  CHECK(without.dv.values() == first.dv.values());
  for (const double value : without.added_dbias()) CHECK(value == 0);
}
