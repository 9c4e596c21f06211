// Attention in double precision, written down as plainly as it can be: whole matrices of scores, one predicate for
// "does this query see this key", one Philox call per dropout draw. What the blocked kernels are measured against.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/core/distance_buckets.h"
#include "base/core/philox.h"

namespace megatron::test {

/// One attention call: extents, mask and dropout, in host vectors. Empty vectors: absent.
struct AttentionCase {
  std::int64_t queries = 1, keys = 1, samples = 1, heads = 1, key_heads = 1, size = 8;
  double scale = 1;
  double softcap = 0;  ///< 0: none
  bool causal = true;
  std::int64_t query_offset = 0, offset_step = 0;  ///< see offset()
  std::int64_t first_key = 0;                      ///< position of key row 0
  std::int64_t window = 0;
  std::vector<std::int32_t> key_lengths, document_starts;
  std::vector<float> slopes;
  bool biased = false;      ///< has a bias by the buckets of distances
  DistanceBuckets buckets;  ///< for the bias
  double dropout = 0;
  std::uint64_t key = 0;
  std::vector<std::int32_t> positions;
  std::int64_t first_sample = 0, first_head = 0;
  std::int64_t left_margin = 3, right_margin = 2;  ///< columns of others next to the heads in memory

  std::size_t query_elements() const { return static_cast<std::size_t>(queries * samples * heads * size); }
  std::size_t key_elements() const { return static_cast<std::size_t>(keys * samples * key_heads * size); }
  std::size_t at_query(std::int64_t i, std::int64_t sample, std::int64_t head) const {
    return static_cast<std::size_t>(((i * samples + sample) * heads + head) * size);
  }
  std::size_t at_key(std::int64_t j, std::int64_t sample, std::int64_t head) const {
    return static_cast<std::size_t>(((j * samples + sample) * key_heads + head / (heads / key_heads)) * size);
  }

  std::size_t bias_elements() const { return biased ? static_cast<std::size_t>(heads * buckets.buckets) : 0; }
  std::size_t at_bias(std::int64_t sample, std::int64_t head, std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>(head * buckets.buckets + buckets.bucket(distance(sample, i, j)));
  }

  /// Keys in front of a sample's queries.
  std::int64_t offset(std::int64_t sample) const { return query_offset + sample * offset_step; }

  /// From the position of a query to that of key row j.
  std::int64_t distance(std::int64_t sample, std::int64_t i, std::int64_t j) const {
    return first_key + j - offset(sample) - i;
  }

  bool sees(std::int64_t sample, std::int64_t i, std::int64_t row) const {
    const std::int64_t position = offset(sample) + i, j = first_key + row;
    if (causal && j > position) return false;
    if (window > 0 && (j > position || j <= position - window)) return false;
    if (!key_lengths.empty() && j >= key_lengths[static_cast<std::size_t>(sample)]) return false;
    return document_starts.empty() || j >= document_starts[static_cast<std::size_t>(sample * queries + i)];
  }

  double multiplier(std::int64_t sample, std::int64_t head, std::int64_t i, std::int64_t row) const {
    if (dropout == 0) return 1;
    const std::int64_t j = first_key + row;
    const auto threshold = static_cast<std::uint32_t>(std::lround(dropout * 65536));
    const PhiloxCounter words = philox4x32<7>(
        {static_cast<std::uint32_t>(j / 8), static_cast<std::uint32_t>(positions[static_cast<std::size_t>(i)]),
         static_cast<std::uint32_t>(first_head + head), static_cast<std::uint32_t>(first_sample + sample)},
        key);
    const std::uint32_t word = words[static_cast<std::size_t>(j % 8 / 2)];
    const std::uint32_t draw = j % 2 == 0 ? word & 0xFFFF : word >> 16;
    return draw >= threshold ? 65536.0 / (65536.0 - threshold) : 0.0;
  }
};

struct AttentionResult {
  std::vector<double> out, log_sum_exp;   ///< [s_q, b, a, d], [b, a, s_q]
  std::vector<double> dq, dk, dv, dbias;  ///< gradients of sum(dout · out)
  std::vector<double> dbias_terms;        ///< the sizes of what dbias is the sum of, summed up
};

/// A capped score's derivative by the score before.
inline double cap_derivative(const AttentionCase& c, double score) {
  return c.softcap > 0 ? 1 / std::pow(std::cosh(score / c.softcap), 2) : 1;
}

/// The product of a query and a key with the scale.
inline double reference_score(const AttentionCase& c, const std::vector<double>& q, const std::vector<double>& k,
                              std::size_t row, std::size_t column) {
  double score = 0;
  for (std::size_t x = 0; x < static_cast<std::size_t>(c.size); ++x) score += q[row + x] * k[column + x];
  return score * c.scale;
}

/// Probabilities (before dropout) of one query; returns the log-sum-exp, -infinity if it sees nothing.
inline double reference_probabilities(const AttentionCase& c, const std::vector<double>& q,
                                      const std::vector<double>& k, const std::vector<double>& bias,
                                      std::int64_t sample, std::int64_t head, std::int64_t i,
                                      std::vector<double>& probabilities) {
  const double none = -std::numeric_limits<double>::infinity();
  probabilities.assign(static_cast<std::size_t>(c.keys), none);
  double maximum = none;
  for (std::int64_t j = 0; j < c.keys; ++j) {
    if (!c.sees(sample, i, j)) continue;
    double score = reference_score(c, q, k, c.at_query(i, sample, head), c.at_key(j, sample, head));
    if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
    if (!c.slopes.empty()) {
      score += double{c.slopes[static_cast<std::size_t>(head)]} * static_cast<double>(c.distance(sample, i, j));
    }
    if (c.biased) score += bias[c.at_bias(sample, head, i, j)];
    probabilities[static_cast<std::size_t>(j)] = score;
    maximum = std::max(maximum, score);
  }
  double sum = 0;
  for (double& p : probabilities) {
    p = p == none ? 0 : std::exp(p - maximum);
    sum += p;
  }
  if (sum == 0) return none;
  for (double& p : probabilities) p /= sum;
  return maximum + std::log(sum);
}

/// Adds one query's part to the gradients.
inline void reference_backward_row(const AttentionCase& c, const std::vector<double>& q, const std::vector<double>& k,
                                   const std::vector<double>& v, const std::vector<double>& dout, std::int64_t sample,
                                   std::int64_t head, std::int64_t i, const std::vector<double>& probabilities,
                                   AttentionResult& result) {
  const std::size_t row = c.at_query(i, sample, head);
  const auto size = static_cast<std::size_t>(c.size);
  std::vector<double> dprobabilities(probabilities.size());
  double mean = 0;  // mean of the gradient under the softmax
  for (std::int64_t j = 0; j < c.keys; ++j) {
    const std::size_t column = c.at_key(j, sample, head), at = static_cast<std::size_t>(j);
    const double multiplier = c.multiplier(sample, head, i, j);
    for (std::size_t x = 0; x < size; ++x) {
      dprobabilities[at] += multiplier * dout[row + x] * v[column + x];
      result.dv[column + x] += multiplier * probabilities[at] * dout[row + x];
    }
    mean += probabilities[at] * dprobabilities[at];
  }
  for (std::int64_t j = 0; j < c.keys; ++j) {
    const std::size_t column = c.at_key(j, sample, head), at = static_cast<std::size_t>(j);
    const double dscore = probabilities[at] * (dprobabilities[at] - mean);
    if (c.biased) {
      result.dbias[c.at_bias(sample, head, i, j)] += dscore;
      result.dbias_terms[c.at_bias(sample, head, i, j)] +=
          probabilities[at] * (std::abs(dprobabilities[at]) + std::abs(mean));
    }
    const double dproduct = dscore * cap_derivative(c, reference_score(c, q, k, row, column)) * c.scale;
    for (std::size_t x = 0; x < size; ++x) {
      result.dq[row + x] += dproduct * k[column + x];
      result.dk[column + x] += dproduct * q[row + x];
    }
  }
}

/// Output, log-sum-exp and, unless dout is empty, all gradients. bias: [heads, buckets] of a biased case.
inline AttentionResult reference_attention(const AttentionCase& c, const std::vector<double>& q,
                                           const std::vector<double>& k, const std::vector<double>& v,
                                           const std::vector<double>& dout, const std::vector<double>& bias = {}) {
  AttentionResult result;
  result.out.assign(c.query_elements(), 0);
  result.dq.assign(c.query_elements(), 0);
  result.dk.assign(c.key_elements(), 0);
  result.dv.assign(c.key_elements(), 0);
  result.dbias.assign(c.bias_elements(), 0);
  result.dbias_terms.assign(c.bias_elements(), 0);
  std::vector<double> probabilities;
  for (std::int64_t sample = 0; sample < c.samples; ++sample) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      for (std::int64_t i = 0; i < c.queries; ++i) {
        result.log_sum_exp.push_back(reference_probabilities(c, q, k, bias, sample, head, i, probabilities));
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const double p = probabilities[static_cast<std::size_t>(j)] * c.multiplier(sample, head, i, j);
          for (std::size_t x = 0; x < static_cast<std::size_t>(c.size); ++x) {
            result.out[c.at_query(i, sample, head) + x] += p * v[c.at_key(j, sample, head) + x];
          }
        }
        if (!dout.empty()) reference_backward_row(c, q, k, v, dout, sample, head, i, probabilities, result);
      }
    }
  }
  return result;
}

}  // namespace megatron::test
