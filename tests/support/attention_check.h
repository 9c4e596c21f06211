// Common parts of tests of attention: cases, and the comparison of their results with the reference's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "backend/ops/ops.h"
#include "support/attention_reference.h"
#include "support/attention_run.h"
#include "support/catch.h"

namespace megatron::test {

inline double norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}
/// |actual - expected|, both as vectors; NaN anywhere makes it NaN.
inline double difference_norm(std::vector<double> actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) actual[i] -= expected[i];
  return norm(actual);
}
/// The same over |expected|.
inline double relative_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  const double difference = difference_norm(actual, expected), size = norm(expected);
  return size == 0 ? difference : difference / size;
}

template <class T>
void check_results(const Run<T>& run, const AttentionResult& expected, double tolerance) {
  CHECK(relative_error(run.out.values(), expected.out) < tolerance);
  CHECK(relative_error(run.dq.values(), expected.dq) < tolerance);
  CHECK(relative_error(run.dk.values(), expected.dk) < tolerance);
  CHECK(relative_error(run.dv.values(), expected.dv) < tolerance);
  // Terms of both signs all but cancel out: what is left is as exact as they are.
  CHECK(difference_norm(run.added_dbias(), expected.dbias) <= tolerance * (1e-1 + norm(expected.dbias_terms)));
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

template <class T = float>
void check_case(Ops& ops, const AttentionCase& c, double tolerance = 2e-6, double amplitude = 1) {
  CAPTURE(c.queries, c.keys, c.samples, c.heads, c.key_heads, c.size, c.causal, c.query_offset, c.offset_step,
          c.first_key, c.window, c.softcap, c.dropout);
  const Inputs<T> x(c, amplitude);
  Run<T> run(c, x);
  run.execute(ops);
  check_results(run, reference_attention(c, x.q, x.k, x.v, x.dout, x.bias), tolerance);
}

/// Largest error of results of elements T: one rounding, and gradients have the output's too, through delta.
template <class T>
inline constexpr double kTolerance = std::is_same_v<T, float>      ? 2e-6
                                     : std::is_same_v<T, BFloat16> ? 0x1p-7
                                                                   : 0x1p-10;

inline AttentionCase plain(std::int64_t s, std::int64_t b, std::int64_t a, std::int64_t d, bool causal = true) {
  AttentionCase c;
  c.queries = c.keys = s;
  c.samples = b;
  c.heads = c.key_heads = a;
  c.size = d;
  c.scale = 1 / std::sqrt(static_cast<double>(d)) * 3;  // uneven probabilities
  c.causal = causal;
  return c;
}

inline void add_dropout(AttentionCase& c, double probability) {
  c.dropout = probability;
  c.key = 0x123456789ABCDEFull;
  c.positions.resize(static_cast<std::size_t>(c.queries));
  std::iota(c.positions.begin(), c.positions.end(), static_cast<std::int32_t>(c.query_offset) + 1000);
  c.first_sample = 5;
  c.first_head = 3;
}

/// A bias of distances: 8 buckets of up to 20 unless `buckets` says otherwise.
inline AttentionCase biased(AttentionCase c, DistanceBuckets buckets = {.buckets = 8, .max_distance = 20}) {
  c.biased = true;
  c.buckets = buckets;
  c.buckets.bidirectional = !c.causal;
  return c;
}

/// A cap that scores of a plain case come near to, and some exceed.
inline AttentionCase capped(AttentionCase c, double softcap = 1.5) {
  c.softcap = softcap;
  return c;
}

/// All kinds of mask at once can only shrink the range; each kind alone is its own case.
inline std::vector<AttentionCase> masked_cases(std::int64_t s, std::int64_t b, std::int64_t a, std::int64_t d) {
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

/// The reference's gradients are its central differences, by every element of every input.
inline void check_reference_slopes(const AttentionCase& c, Inputs<>& x) {
  const AttentionResult result = reference_attention(c, x.q, x.k, x.v, x.dout, x.bias);
  const auto loss = [&] {
    const std::vector<double> out = reference_attention(c, x.q, x.k, x.v, {}, x.bias).out;
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
  if (c.biased) check(x.bias, result.dbias);
}

}  // namespace megatron::test
