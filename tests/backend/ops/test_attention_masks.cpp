// Attention under masks of every kind, each alone and all together, against the reference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "backend/ops/ops.h"
#include "support/attention_check.h"
#include "support/attention_reference.h"
#include "support/attention_run.h"
#include "support/catch.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("attention: every mask at awkward sizes", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const std::int64_t sizes[][4] = {{1, 1, 1, 8}, {7, 2, 3, 16}, {33, 3, 2, 5}, {129, 2, 2, 64}, {300, 1, 1, 80}};
  for (const auto& size : sizes) {
    for (AttentionCase c : masked_cases(size[0], size[1], size[2], size[3])) {
      check_case(ops, c);
      add_dropout(c, 0.3);
      check_case(ops, c);
    }
  }
}

TEMPLATE_TEST_CASE("attention of 16-bit elements: every mask", "[attention]", BFloat16, Float16) {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const double rounding = kTolerance<TestType>;
  const std::int64_t sizes[][4] = {{11, 2, 3, 16}, {33, 3, 2, 5}, {129, 2, 2, 64}};
  for (const auto& size : sizes) {
    for (AttentionCase c : masked_cases(size[0], size[1], size[2], size[3])) {
      check_case<TestType>(ops, c, rounding);
      add_dropout(c, 0.3);
      check_case<TestType>(ops, c, rounding);
    }
  }
  AttentionCase grouped = plain(600, 1, 4, 16);
  grouped.key_heads = 2;
  check_case<TestType>(ops, grouped, rounding);
}

TEMPLATE_TEST_CASE("attention: few queries over many keys, as decoding has", "[attention]", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const double rounding = std::is_same_v<TestType, float> ? 1 : kTolerance<TestType>;
  const auto check = [&](const AttentionCase& c) {
    CAPTURE(c.queries, c.keys, c.samples, c.heads, c.key_heads, c.size);
    if constexpr (std::is_same_v<TestType, float>) {
      check_case(ops, c);
    } else {
      check_case<TestType>(ops, c, rounding);
    }
  };
  for (const std::int64_t queries : {1, 2, 4, 5}) {
    for (const std::int64_t size : {5, 16, 64, 80}) {
      AttentionCase c = plain(queries, 3, 4, size, false);
      c.keys = 77;
      check(c);
      c.key_heads = 2;
      check(c);
      c.key_lengths = {1, 77, 40};
      check(c);
      for (std::int64_t i = 0; i < 3 * queries; ++i) {
        c.document_starts.push_back(c.key_lengths[static_cast<std::size_t>(i / queries)] / 2);
      }
      check(c);
      c.slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
      c.query_offset = 60;
      check(c);
      c.causal = true;
      check(c);
      c.offset_step = 7;  // samples of different lengths so far, the last with queries after the last key
      check(c);
      c.window = 30;
      check(c);
    }
  }
}

TEMPLATE_TEST_CASE("attention of 16-bit elements: aligned rows, heads of all widths", "[attention][all-widths]",
                   BFloat16, Float16) {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const double rounding = kTolerance<TestType>;
  const auto check = [&](AttentionCase c) {
    c.left_margin = c.right_margin = 8;  // 16 bytes
    check_case<TestType>(ops, c, rounding);
  };
  for (AttentionCase c : masked_cases(140, 2, 1, 64)) check(c);
  for (AttentionCase c : masked_cases(140, 1, 1, 128)) {
    check(c);
    add_dropout(c, 0.2);
    check(c);
    check_case<TestType>(ops, c, rounding);  // and not aligned
  }
  for (const std::int64_t size : {8, 72, 80, 136}) check(plain(70, 1, 2, size));
  for (const std::int64_t size : {100, 129}) check_case<TestType>(ops, plain(40, 2, 1, size), rounding);
  AttentionCase grouped = plain(260, 1, 4, 64);
  grouped.key_heads = 2;
  check(grouped);
  AttentionCase chunk = plain(130, 1, 2, 128);  // a later chunk of a sequence, over all its keys so far
  chunk.keys = 330;
  chunk.query_offset = 200;
  check(chunk);
  chunk.samples = 3;
  chunk.offset_step = -90;
  check(chunk);
  chunk.window = 100;
  check(chunk);
  AttentionCase turned = plain(100, 1, 1, 64);
  turned.scale = -turned.scale;
  check(turned);
  check(plain(700, 1, 1, 64));
  check(plain(300, 1, 1, 128));
}

TEMPLATE_TEST_CASE("attention of 16-bit elements: the largest heads", "[attention]", BFloat16, Float16) {
  const Backend backend = make_test_backend();
  AttentionCase c = plain(70, 1, 2, 256);
  c.left_margin = c.right_margin = 8;
  check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
}

TEMPLATE_TEST_CASE("attention: a later chunk with all masks and dropout at once", "[attention]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const auto& [size, key_heads] : {std::pair<std::int64_t, std::int64_t>{16, 1}, {64, 2}, {128, 4}}) {
    AttentionCase c = plain(size == 64 ? 150 : 90, 3, 4, size);
    c.key_heads = key_heads;
    c.query_offset = 40;
    c.keys = c.queries + c.query_offset;
    c.window = 60;
    c.left_margin = c.right_margin = size == 16 ? 3 : 8;
    for (const std::int64_t left_out : {0, 53, 7}) {
      c.key_lengths.push_back(static_cast<std::int32_t>(c.keys - left_out));
    }
    for (std::int64_t sample = 0; sample < c.samples; ++sample) {
      const std::int64_t length = 37 + 11 * sample;
      for (std::int64_t i = 0; i < c.queries; ++i) {
        c.document_starts.push_back(static_cast<std::int32_t>((c.query_offset + i) / length * length));
      }
    }
    c.slopes = {0.5f, 0.25f, 0.0625f, 0.00390625f};
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    c.offset_step = -13;
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
    add_dropout(c, 0.25);
    check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
  }
}

TEMPLATE_TEST_CASE("attention: padded keys and values may hold NaN and have no gradients", "[attention]", float,
                   BFloat16, Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t size : {64, 128, 136}) {
    for (const bool causal : {false, true}) {
      CAPTURE(size, causal);
      AttentionCase c = plain(150, 3, 2, size, causal);
      c.key_heads = 1;
      c.left_margin = c.right_margin = 8;
      c.key_lengths = {150, 0, 101};
      if (causal) add_dropout(c, 0.2);
      Inputs<TestType> x(c);
      const AttentionResult expected = reference_attention(c, x.q, x.k, x.v, x.dout);
      for (std::int64_t sample = 0; sample < c.samples; ++sample) {
        for (std::int64_t j = c.key_lengths[static_cast<std::size_t>(sample)]; j < c.keys; ++j) {
          const auto from = static_cast<std::ptrdiff_t>(c.at_key(j, sample, 0));
          std::fill_n(x.k.begin() + from, size, std::numeric_limits<double>::quiet_NaN());
          std::fill_n(x.v.begin() + from, size, std::numeric_limits<double>::quiet_NaN());
        }
      }
      Run<TestType> run(c, x);
      run.execute(*backend.ops);
      check_results(run, expected, kTolerance<TestType>);
    }
  }
}

TEST_CASE("attention rows that see nothing give 0", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  AttentionCase c = plain(70, 2, 2, 16);
  c.key_lengths = {0, 40};  // sample 0 sees nothing at all
  c.window = 8;             // sample 1 nothing from query 48 on
  for (const double probability : {0.0, 0.5}) {
    if (probability > 0) add_dropout(c, probability);
    check_case(ops, c);
    const Inputs<> x(c);
    Run<> run(c, x);
    run.execute(ops);
    const std::vector<double> out = run.out.values(), dk = run.dk.values();
    for (std::size_t at = 0; at < static_cast<std::size_t>(c.size); ++at) {
      CHECK(out[c.at_query(3, 0, 1) + at] == 0);
      CHECK(out[c.at_query(69, 1, 0) + at] == 0);
      CHECK(std::abs(out[c.at_query(10, 1, 0) + at]) > 0);
      CHECK(dk[c.at_key(41, 1, 0) + at] == 0);
    }
    CHECK(run.log_sum_exp[0] == -std::numeric_limits<float>::infinity());
  }
  AttentionCase no_keys = plain(7, 1, 1, 8, false);
  no_keys.keys = 0;
  check_case(ops, no_keys);
  AttentionCase everything_dropped = plain(7, 1, 1, 8);
  add_dropout(everything_dropped, 1.0 - 0x1p-20);
  const Inputs<> x(everything_dropped);
  Run<> run(everything_dropped, x);
  run.execute(ops);
  for (const double value : run.out.values()) CHECK(value == 0);
  for (const double value : run.dq.values()) CHECK(value == 0);
}
