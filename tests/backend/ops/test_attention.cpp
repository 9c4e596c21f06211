#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backend/ops/ops.h"
#include "support/attention_check.h"
#include "support/attention_reference.h"
#include "support/attention_run.h"
#include "support/catch.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

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
  check_reference_slopes(c, x);
}

TEST_CASE("attention: same bits again and on a rank with some heads and samples", "[attention]") {
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
                    Contains("attention_forward: this backend has no f64"));
  CHECK_THROWS_WITH(ops.attention_forward({half, half, single, half, lse, 1, {}, {}}),
                    Contains("attention_forward: a tensor of f32 with queries of bf16"));
}
