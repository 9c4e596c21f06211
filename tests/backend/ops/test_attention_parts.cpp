// Attention to a part of the keys of a sequence, which begins later, and parts that are merged, against the reference.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/ops/ops.h"
#include "base/core/error.h"
#include "support/attention_check.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Values = std::vector<double>;

/// The case of the keys [first, first + count) of `c`.
AttentionCase of_keys(AttentionCase c, std::int64_t first, std::int64_t count) {
  c.first_key = first;
  c.keys = count;
  return c;
}
Values rows_of(const AttentionCase& c, const Values& keys, std::int64_t first, std::int64_t count) {
  const std::int64_t row = c.samples * c.key_heads * c.size;
  return {keys.begin() + first * row, keys.begin() + (first + count) * row};
}

template <class T>
Owned<T> contiguous(const AttentionCase& c, const Strided<T>& x) {
  Owned<T> result({c.queries, c.samples, c.heads, c.size});
  const Values values = x.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[static_cast<std::int64_t>(i)] = narrow<T>(static_cast<float>(values[i]));
  }
  return result;
}

/// Output, and in f32 the logarithms, of all keys by parts of `each`.
template <class T>
void check_merged(Ops& ops, const AttentionCase& c, std::int64_t each) {
  CAPTURE(c.queries, c.keys, c.size, c.causal, c.window, c.softcap, c.dropout);
  const Inputs<T> x(c);
  Owned<float> out({c.queries, c.samples, c.heads, c.size});
  Owned<float> log_sum_exp({c.samples, c.heads, c.queries}, -std::numeric_limits<float>::infinity());
  for (std::int64_t first = 0; first < c.keys; first += each) {
    const std::int64_t count = std::min(each, c.keys - first);
    const AttentionCase part = of_keys(c, first, count);
    Inputs<T> inputs = x;
    inputs.k = rows_of(c, x.k, first, count);
    inputs.v = rows_of(c, x.v, first, count);
    Run<T> run(part, inputs);
    run.execute(ops);
    const ConstTensor sums(run.log_sum_exp.data(), log_sum_exp.shape(), DType::f32);
    ops.merge_attention({contiguous(c, run.out), sums, out, log_sum_exp});
  }
  const AttentionResult expected = reference_attention(c, x.q, x.k, x.v, {}, x.bias);
  CHECK(relative_error(as_doubles(out), expected.out) < kTolerance<T>);
  for (std::int64_t i = 0; i < log_sum_exp.elements(); ++i) {
    const double wanted = expected.log_sum_exp[static_cast<std::size_t>(i)];
    if (std::isinf(wanted)) {
      CHECK(log_sum_exp.value(i) == wanted);
    } else {
      CHECK(log_sum_exp.value(i) == Approx(wanted).epsilon(1e-6).margin(1e-6));
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("attention to later keys: every mask and bias", "[attention][parts]", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  const std::int64_t sizes[][4] = {{33, 2, 2, 16}, {140, 1, 2, 64}};
  for (const auto& size : sizes) {
    for (AttentionCase c : masked_cases(size[0], size[1], size[2], size[3])) {
      c.left_margin = c.right_margin = 8;
      c.query_offset = 40;  // some queries see only keys in front of these, and some none of them
      for (std::int32_t& start : c.document_starts) start += 30;
      for (std::int32_t& length : c.key_lengths) length += 30;
      for (const std::int64_t first : {8, 64}) {
        c.first_key = first;
        CAPTURE(first);
        check_case<TestType>(*backend.ops, c, kTolerance<TestType>);
        AttentionCase dropped = c;
        add_dropout(dropped, 0.3);
        check_case<TestType>(*backend.ops, dropped, kTolerance<TestType>);
        check_case<TestType>(*backend.ops, capped(c), kTolerance<TestType>);
        check_case<TestType>(*backend.ops, biased(c), kTolerance<TestType>);
      }
    }
  }
}

TEMPLATE_TEST_CASE("parts of attention become the whole one", "[attention][parts]", float, BFloat16, Float16) {
  const Backend backend = make_test_backend();
  for (AttentionCase c : masked_cases(40, 2, 2, 20)) {
    for (const std::int64_t each : {8, 24}) {
      check_merged<TestType>(*backend.ops, c, each);
      AttentionCase dropped = c;
      add_dropout(dropped, 0.3);
      check_merged<TestType>(*backend.ops, dropped, each);
      check_merged<TestType>(*backend.ops, biased(c), each);
    }
  }
}

TEST_CASE("merged attention: far apart, equal, and rows without keys", "[attention][parts]") {
  const Backend backend = make_test_backend();
  const float none = -std::numeric_limits<float>::infinity();
  const Owned<float> part({5, 1, 1, 1}, std::vector<float>{2, 2, 2, 2, 2});
  const Owned<float> sums({1, 1, 5}, std::vector<float>{300, -300, 1, none, 4});
  Owned<float> out({5, 1, 1, 1}, std::vector<float>{1, 1, 1, 1, 0}),
      log_sum_exp({1, 1, 5}, std::vector<float>{-300, 300, 1, none, none});
  backend.ops->merge_attention({part, sums, out, log_sum_exp});
  CHECK(out == Owned<float>({5, 1, 1, 1}, std::vector<float>{2, 1, 1.5f, 1, 2}));
  CHECK(log_sum_exp[0] == 300);
  CHECK(log_sum_exp[1] == 300);
  CHECK(log_sum_exp[2] == Approx(1 + std::log(2.0)));
  CHECK(log_sum_exp[3] == none);
  CHECK(log_sum_exp[4] == 4);
}

TEST_CASE("parts of attention that do not fit are our own errors", "[attention][parts]") {
  const Backend backend = make_test_backend();
  Owned<float> part({4, 2, 2, 8}), wider({4, 2, 2, 9}), sums({2, 2, 4}), by_row({4, 2, 2});
  Owned<BFloat16> narrow({4, 2, 2, 8});
  const auto kind = [&](const MergeAttentionArgs& args) {
    try {
      backend.ops->merge_attention(args);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::configuration;
  };
  CHECK(kind({narrow, sums, part, sums}) == ErrorKind::configuration);  // as it should be
  CHECK(kind({part, sums, wider, sums}) == ErrorKind::internal);
  CHECK(kind({part, by_row, part, sums}) == ErrorKind::internal);
  CHECK(kind({part, sums, narrow, sums}) == ErrorKind::internal);
}
