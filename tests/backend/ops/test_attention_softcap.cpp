// Attention whose scores are capped, alone and with every mask and bias, against the reference.
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backend/ops/ops.h"
#include "base/core/error.h"
#include "support/attention_check.h"
#include "support/attention_reference.h"
#include "support/attention_run.h"
#include "support/catch.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("attention of capped scores: every mask at awkward sizes", "[attention][softcap]") {
  const Backend backend = make_test_backend();
  const std::int64_t sizes[][4] = {{1, 1, 1, 8}, {7, 2, 3, 16}, {33, 3, 2, 5}, {129, 1, 2, 24}};
  for (const auto& size : sizes) {
    for (const AttentionCase& uncapped : masked_cases(size[0], size[1], size[2], size[3])) {
      AttentionCase c = capped(uncapped);
      check_case(*backend.ops, c);
      add_dropout(c, 0.3);
      check_case(*backend.ops, c);
    }
  }
}

TEMPLATE_TEST_CASE("attention of capped scores, of 16-bit elements: every mask", "[attention][softcap]", BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  const std::int64_t sizes[][4] = {{11, 2, 3, 16}, {33, 3, 2, 5}, {140, 1, 2, 64}, {70, 1, 1, 128}};
  for (const auto& size : sizes) {
    for (const AttentionCase& uncapped : masked_cases(size[0], size[1], size[2], size[3])) {
      AttentionCase c = capped(uncapped);
      c.left_margin = c.right_margin = size[3] >= 64 ? 8 : 3;
      check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
      add_dropout(c, 0.3);
      check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    }
  }
}

TEMPLATE_TEST_CASE("attention of capped scores: groups and heads of all widths", "[attention][softcap][all-widths]",
                   float, BFloat16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t size : {16, 64, 100, 128, 136}) {
    AttentionCase c = capped(plain(70, 1, 4, size));
    c.key_heads = 2;
    c.left_margin = c.right_margin = 8;
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    c.keys = 150;  // a later chunk of a sequence
    c.query_offset = 80;
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    c.scale = -c.scale;
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
  }
}

TEMPLATE_TEST_CASE("attention of capped scores: the largest heads", "[attention][softcap]", float, BFloat16) {
  const Backend backend = make_test_backend();
  AttentionCase c = capped(plain(70, 1, 2, 256));
  c.left_margin = c.right_margin = 8;
  check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
}

TEMPLATE_TEST_CASE("attention of capped scores: few queries, as decoding has", "[attention][softcap]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t queries : {1, 2, 4, 5}) {
    AttentionCase c = capped(plain(queries, 3, 4, 64));
    c.keys = 77;
    c.key_heads = 2;
    c.query_offset = 60;
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    c.offset_step = 7;
    c.key_lengths = {1, 77, 70};
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    c.slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    c.slopes.clear();
    check_case<TestType>(*backend.ops, biased(c), 1.5 * kTolerance<TestType>);
  }
}

TEMPLATE_TEST_CASE("attention of capped scores: a bias of distances is not capped", "[attention][softcap]", float,
                   BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const double tolerance = std::is_same_v<TestType, float> ? kTolerance<float> : 1.5 * kTolerance<TestType>;
  for (const std::int64_t size : {16, 64, 136}) {
    for (const bool causal : {false, true}) {
      AttentionCase c = capped(biased(plain(70, 2, 2, size, causal)));
      c.left_margin = c.right_margin = 8;
      check_case<TestType>(*backend.ops, c, tolerance);
      add_dropout(c, 0.2);
      check_case<TestType>(*backend.ops, c, tolerance);
    }
  }
}

TEST_CASE("attention of capped scores: sequences of several tiles of keys", "[attention][softcap]") {
  const Backend backend = make_test_backend();
  AttentionCase c = capped(plain(1100, 1, 1, 16));
  check_case(*backend.ops, c);
  c.window = 600;
  check_case(*backend.ops, c);
  check_case<BFloat16>(*backend.ops, capped(plain(400, 1, 1, 64, false)), kTolerance<BFloat16>);
}

TEMPLATE_TEST_CASE("attention of capped scores: a cap far above them is none", "[attention][softcap]", float, Float16) {
  const Backend backend = make_test_backend();
  const AttentionCase c = plain(70, 1, 2, 64);
  const Inputs<TestType> x(c);
  const AttentionCase far = capped(c, 1e6);
  Run<TestType> run(far, x);
  run.execute(*backend.ops);
  check_results(run, reference_attention(c, x.q, x.k, x.v, x.dout), kTolerance<TestType>);
}

TEMPLATE_TEST_CASE("attention of capped scores: scores far above the cap", "[attention][softcap]", float, BFloat16) {
  const Backend backend = make_test_backend();
  AttentionCase c = capped(plain(129, 1, 2, 64), 2);
  c.scale = 1;  // scores up to some thousands: all near one or the other end
  const Inputs<TestType> x(c, 20);
  Run<TestType> run(c, x);
  run.execute(*backend.ops);
  AttentionResult expected = reference_attention(c, x.q, x.k, x.v, x.dout);
  CHECK(relative_error(run.out.values(), expected.out) < kTolerance<TestType>);
  CHECK(relative_error(run.dv.values(), expected.dv) < kTolerance<TestType>);
  for (const float value : run.log_sum_exp) CHECK(std::abs(value) <= 2 + std::log(129.0f) + 1e-4f);
  for (const double value : run.dq.values()) CHECK(std::isfinite(value));
  // Some scores are at an end, the others have all of the gradient. Products of this size are exact to 1e-5.
  c.softcap = 20;
  const Inputs<TestType> smaller(c, 4);
  Run<TestType> mixed(c, smaller);
  mixed.execute(*backend.ops);
  expected = reference_attention(c, smaller.q, smaller.k, smaller.v, smaller.dout);
  const double tolerance = std::is_same_v<TestType, float> ? 2e-5 : 2 * kTolerance<TestType>;
  CHECK(relative_error(mixed.dq.values(), expected.dq) < tolerance);
  CHECK(relative_error(mixed.dk.values(), expected.dk) < tolerance);
}

TEST_CASE("attention of capped scores: reference gradients are its slopes", "[attention][softcap]") {
  AttentionCase c = plain(9, 2, 4, 5);
  c.keys = 13;
  c.key_heads = 2;
  c.query_offset = 2;
  c.slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  c = capped(biased(c, {.buckets = 6, .max_distance = 8}), 0.8);
  add_dropout(c, 0.3);
  Inputs<> x(c);
  check_reference_slopes(c, x);
}

TEST_CASE("attention of capped scores: a negative cap is our own error", "[attention][softcap]") {
  const Backend backend = make_test_backend();
  const AttentionCase c = capped(plain(4, 1, 1, 8), -1);
  const Inputs<> x(c);
  Run<> run(c, x);
  CHECK_THROWS_WITH(run.execute(*backend.ops), Contains("the soft cap is not negative"));
}
