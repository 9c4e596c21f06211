#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "support/attention_reference.h"
#include "support/attention_run.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// |actual - expected| over |expected|, both as vectors; NaN anywhere makes it NaN.
double relative_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

template <class T = float>
void check_case(Ops& ops, const AttentionCase& c, double tolerance = 2e-6, double amplitude = 1) {
  CAPTURE(c.queries, c.keys, c.samples, c.heads, c.key_heads, c.size, c.causal, c.query_offset, c.window, c.dropout);
  const Inputs<T> x(c, amplitude);
  Run<T> run(c, x);
  run.execute(ops);
  const AttentionResult expected = reference_attention(c, x.q, x.k, x.v, x.dout);
  CHECK(relative_error(run.out.values(), expected.out) < tolerance);
  CHECK(relative_error(run.dq.values(), expected.dq) < tolerance);
  CHECK(relative_error(run.dk.values(), expected.dk) < tolerance);
  CHECK(relative_error(run.dv.values(), expected.dv) < tolerance);
  for (const Strided<T>* output : {&run.out, &run.dq, &run.dk, &run.dv}) CHECK(output->margins_intact());
  double worst = 0;
  for (std::size_t i = 0; i < run.log_sum_exp.size(); ++i) {
    const double wanted = expected.log_sum_exp[i], got = double{run.log_sum_exp[i]};
    if (std::isinf(wanted)) {
      if (got != wanted) worst = 1;
    } else {
      worst = std::max(worst, std::isfinite(got) ? std::abs(got - wanted) / (1 + std::abs(wanted)) : 1);
    }
  }
  CHECK(worst < 1e-6);
}

AttentionCase plain(std::int64_t s, std::int64_t b, std::int64_t a, std::int64_t d, bool causal = true) {
  AttentionCase c;
  c.queries = c.keys = s;
  c.samples = b;
  c.heads = c.key_heads = a;
  c.size = d;
  c.scale = 1 / std::sqrt(static_cast<double>(d)) * 3;  // uneven probabilities
  c.causal = causal;
  return c;
}

void add_dropout(AttentionCase& c, double probability) {
  c.dropout = probability;
  c.key = 0x123456789ABCDEFull;
  c.positions.resize(static_cast<std::size_t>(c.queries));
  std::iota(c.positions.begin(), c.positions.end(), static_cast<std::int32_t>(c.query_offset) + 1000);
  c.first_sample = 5;
  c.first_head = 3;
}

/// All kinds of mask at once can only shrink the range; each kind alone is its own case.
std::vector<AttentionCase> masked_cases(std::int64_t s, std::int64_t b, std::int64_t a, std::int64_t d) {
  std::vector<AttentionCase> cases{plain(s, b, a, d), plain(s, b, a, d, false)};
  AttentionCase window = plain(s, b, a, d);
  window.window = std::max<std::int64_t>(1, s / 5);
  cases.push_back(window);
  window.causal = false;  // a window ends at the query's own position by itself
  cases.push_back(window);

  AttentionCase lengths = plain(s, b, a, d, false);
  for (std::int64_t i = 0; i < b; ++i) lengths.key_lengths.push_back(static_cast<std::int32_t>(i == 0 ? s / 2 : s));
  cases.push_back(lengths);

  AttentionCase documents = plain(s, b, a, d);
  for (std::int64_t sample = 0; sample < b; ++sample) {
    const std::int64_t length = s / 3 + 1 + sample;
    for (std::int64_t i = 0; i < s; ++i) {
      documents.document_starts.push_back(static_cast<std::int32_t>(i / length * length));
    }
  }
  cases.push_back(documents);

  AttentionCase slopes = plain(s, b, a, d);
  for (std::int64_t head = 0; head < a; ++head) {
    slopes.slopes.push_back(std::exp2(-8.0f * static_cast<float>(head + 1) / static_cast<float>(a)));
  }
  cases.push_back(slopes);

  AttentionCase all = documents;
  all.slopes = slopes.slopes;
  all.window = s / 2 + 1;
  all.key_lengths = lengths.key_lengths;
  cases.push_back(all);
  return cases;
}

}  // namespace

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
  // One rounding of every result, and gradients have the output's too, through delta.
  const double rounding = 2 * (std::is_same_v<TestType, BFloat16> ? 0x1p-8 : 0x1p-11);
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

TEMPLATE_TEST_CASE("attention of 16-bit elements: aligned rows, heads of all widths", "[attention]", BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const double rounding = 2 * (std::is_same_v<TestType, BFloat16> ? 0x1p-8 : 0x1p-11);
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
  AttentionCase turned = plain(100, 1, 1, 64);
  turned.scale = -turned.scale;
  check(turned);
  check(plain(700, 1, 1, 64));
  check(plain(300, 1, 1, 128));
}

TEMPLATE_TEST_CASE("attention of 16-bit elements: the largest heads", "[attention]", BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const double rounding = 2 * (std::is_same_v<TestType, BFloat16> ? 0x1p-8 : 0x1p-11);
  AttentionCase c = plain(70, 1, 2, 256);
  c.left_margin = c.right_margin = 8;
  check_case<TestType>(*backend.ops, c, rounding);
}

TEST_CASE("attention longer than a block of keys", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  AttentionCase c = plain(1100, 1, 1, 16);
  check_case(ops, c);
  add_dropout(c, 0.1);
  check_case(ops, c);
  c = plain(1100, 1, 1, 8);
  c.window = 600;
  check_case(ops, c);
  c.window = 0;
  c.causal = false;
  c.slopes = {0.01f};
  check_case(ops, c);
  AttentionCase documents = plain(700, 1, 1, 8);  // queries side by side that see keys of different tiles only
  for (std::int32_t i = 0; i < 700; ++i) documents.document_starts.push_back(i / 610 * 610);
  check_case(ops, documents);
  AttentionCase chunk = plain(100, 1, 1, 8);  // the diagonal enters a tile in the middle of a block of queries
  chunk.keys = 600;
  chunk.query_offset = 500;
  check_case(ops, chunk);
  add_dropout(chunk, 0.2);
  check_case(ops, chunk);
}

TEST_CASE("attention: fewer key heads, other numbers of keys, query offsets", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  AttentionCase c = plain(33, 2, 4, 16);
  for (const std::int64_t key_heads : {1, 2}) {
    c.key_heads = key_heads;
    check_case(ops, c);
    AttentionCase dropped = c;
    add_dropout(dropped, 0.2);
    check_case(ops, dropped);
  }
  AttentionCase decoding = plain(1, 2, 4, 64);  // one new token, 129 cached
  decoding.keys = 130;
  decoding.query_offset = 129;
  decoding.key_heads = 2;
  check_case(ops, decoding);
  AttentionCase chunk = plain(70, 2, 2, 16);  // a later chunk of a sequence over all its keys so far
  chunk.keys = 140;
  chunk.query_offset = 70;
  check_case(ops, chunk);
  chunk.window = 20;
  check_case(ops, chunk);
  AttentionCase cross = plain(33, 2, 2, 16, false);  // decoder over encoder
  cross.keys = 129;
  cross.key_lengths = {129, 17};
  check_case(ops, cross);
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
      CHECK(out[c.at_query(10, 1, 0) + at] != 0);
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

TEST_CASE("attention of huge scores does not overflow", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  AttentionCase c = plain(129, 1, 2, 16);
  c.scale = 1;
  check_case(ops, c, 2e-4, 20);  // scores up to some thousands: float resolves them to 1e-4
}

TEST_CASE("attention lets NaN through to where a step can see it", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const AttentionCase c = plain(33, 1, 1, 8);
  Inputs<> x(c);
  x.k[c.at_key(5, 0, 0)] = std::numeric_limits<double>::quiet_NaN();
  Run<> run(c, x);
  run.execute(ops);
  const std::vector<double> out = run.out.values();
  CHECK_FALSE(std::isnan(out[c.at_query(4, 0, 0)]));
  CHECK(std::isnan(out[c.at_query(5, 0, 0)]));
  CHECK(std::isnan(out[c.at_query(32, 0, 0)]));
}

TEST_CASE("attention of query, key and value side by side in one matrix", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const AttentionCase c = plain(70, 2, 3, 16);
  const Inputs<> x(c);
  const std::int64_t hidden = c.heads * c.size;
  const auto rows = static_cast<std::size_t>(c.queries * c.samples), width = static_cast<std::size_t>(hidden);
  TestVector<float> qkv(rows * 3 * width), dqkv(qkv.size(), kNaN), out(rows * width), dout(out.size());
  for (std::size_t i = 0; i < rows * width; ++i) {
    const std::size_t at = i / width * 3 * width + i % width;
    qkv[at] = static_cast<float>(x.q[i]);
    qkv[at + width] = static_cast<float>(x.k[i]);
    qkv[at + 2 * width] = static_cast<float>(x.v[i]);
    dout[i] = static_cast<float>(x.dout[i]);
  }
  const auto part = [&](TestVector<float>& storage, std::int64_t index) {
    return Tensor(storage.data(), {c.queries, c.samples, 3 * hidden}, DType::f32)
        .slice(2, index * hidden, hidden)
        .split_last(c.heads);
  };
  const auto whole = [&](TestVector<float>& storage) {
    return Tensor(storage.data(), {c.queries, c.samples, c.heads, c.size}, DType::f32);
  };
  TestVector<float> log_sum_exp(static_cast<std::size_t>(c.samples * c.heads * c.queries));
  const Tensor lse(log_sum_exp.data(), {c.samples, c.heads, c.queries}, DType::f32);
  const auto scale = static_cast<float>(c.scale);
  ops.attention_forward({part(qkv, 0), part(qkv, 1), part(qkv, 2), whole(out), lse, scale, {}, {}});
  ops.attention_backward({whole(dout),
                          part(qkv, 0),
                          part(qkv, 1),
                          part(qkv, 2),
                          whole(out),
                          lse,
                          part(dqkv, 0),
                          part(dqkv, 1),
                          part(dqkv, 2),
                          scale,
                          {},
                          {}});
  const AttentionResult expected = reference_attention(c, x.q, x.k, x.v, x.dout);
  std::vector<double> got[3];
  for (std::size_t i = 0; i < rows * width; ++i) {
    for (std::size_t index = 0; index < 3; ++index) {
      got[index].push_back(dqkv[i / width * 3 * width + index * width + i % width]);
    }
  }
  CHECK(relative_error({out.begin(), out.end()}, expected.out) < 2e-6);
  CHECK(relative_error(got[0], expected.dq) < 2e-6);
  CHECK(relative_error(got[1], expected.dk) < 2e-6);
  CHECK(relative_error(got[2], expected.dv) < 2e-6);
}

TEST_CASE("the attention reference's gradients are its slopes", "[attention]") {
  AttentionCase c = plain(9, 2, 4, 5);
  c.key_heads = 2;
  c.window = 6;
  c.slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  add_dropout(c, 0.3);
  Inputs<> x(c);
  const AttentionResult result = reference_attention(c, x.q, x.k, x.v, x.dout);
  const auto loss = [&] {
    const std::vector<double> out = reference_attention(c, x.q, x.k, x.v, {}).out;
    return std::inner_product(out.begin(), out.end(), x.dout.begin(), 0.0);
  };
  const auto check = [&](std::vector<double>& input, const std::vector<double>& gradient) {
    std::vector<double> slopes;
    for (double& value : input) {
      const double kept = value, step = 1e-5;
      value = kept + step;
      const double above = loss();
      value = kept - step;
      slopes.push_back((above - loss()) / (2 * step));
      value = kept;
    }
    CHECK(relative_error(slopes, gradient) < 1e-8);
  };
  check(x.q, result.dq);
  check(x.k, result.dk);
  check(x.v, result.dv);
}

TEST_CASE("attention is the same to the bit, again and on a rank with some of the heads and samples", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  AttentionCase c = plain(129, 2, 4, 16);
  add_dropout(c, 0.25);
  const Inputs<> x(c);
  Run<> first(c, x), second(c, x);
  first.execute(ops);
  check_case(ops, plain(200, 1, 1, 80));  // leaves other numbers in the scratch memory
  second.execute(ops);
  const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
  };
  CHECK(same(first.out.values(), second.out.values()));
  CHECK(same(first.dq.values(), second.dq.values()));
  CHECK(same(first.dk.values(), second.dk.values()));
  CHECK(same(first.dv.values(), second.dv.values()));

  AttentionCase part = c;  // sample 1, heads 2 and 3
  part.samples = 1;
  part.heads = part.key_heads = 2;
  part.first_sample = c.first_sample + 1;
  part.first_head = c.first_head + 2;
  const auto cut = [&](const std::vector<double>& whole) {
    std::vector<double> result;
    for (std::int64_t i = 0; i < c.queries; ++i) {
      const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(c.at_query(i, 1, 2));
      result.insert(result.end(), begin, begin + 2 * c.size);
    }
    return result;
  };
  Inputs<> part_inputs(part);
  part_inputs.q = cut(x.q);
  part_inputs.k = cut(x.k);
  part_inputs.v = cut(x.v);
  part_inputs.dout = cut(x.dout);
  Run<> partial(part, part_inputs);
  partial.execute(ops);
  CHECK(same(partial.out.values(), cut(first.out.values())));
  CHECK(same(partial.dq.values(), cut(first.dq.values())));
  CHECK(same(partial.dk.values(), cut(first.dk.values())));
  CHECK(same(partial.dv.values(), cut(first.dv.values())));
}

TEST_CASE("attention refuses other dtypes by name", "[attention]") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  std::vector<double> memory(256);
  const Tensor x(memory.data(), {2, 1, 1, 8}, DType::f64), lse(memory.data() + 64, {1, 1, 2}, DType::f32),
      half(memory.data(), {2, 1, 1, 8}, DType::bf16), single(memory.data(), {2, 1, 1, 8}, DType::f32);
  CHECK_THROWS_WITH(ops.attention_forward({x, x, x, x, lse, 1, {}, {}}),
                    Catch::Contains("attention_forward: this backend has no f64"));
  CHECK_THROWS_WITH(ops.attention_forward({half, half, single, half, lse, 1, {}, {}}),
                    Catch::Contains("attention_forward: a tensor of f32 beside queries of bf16"));
}
