// T5's bias of one head of one sample, spread out from buckets to distances: scores get it as a row of numbers, and
// their gradients are added up by distance and only then by bucket. A table is as long as queries and keys together.
// Lies in a thread's scratch; knows no tensors but through AttentionProblem.
#pragma once

#include "backend/cpu/attention_tile.h"

namespace megatron::attention {

/// values[j] += row[j] in these columns.
inline void add_row(const float* row, Columns columns, float* values) {
#pragma omp simd
  for (std::int64_t j = columns.low; j < columns.high; ++j) values[j] += row[j];
}

class DistanceTable {
 public:
  /// Scratch for one: none for a call without a bias.
  static std::int64_t floats(const AttentionProblem& problem) {
    return problem.has_distance_bias() ? Pieces::padded(problem.queries + problem.keys) : 0;
  }

  explicit DistanceTable(const AttentionProblem& problem) : problem_(problem) {}
  void place(float* memory) { values_ = memory; }

  /// Values of a query for the key `first_key` and those after it. Both count from 0, without the query's offset.
  float* row(std::int64_t first_key, std::int64_t query) const {
    return values_ + (first_key - query + problem_.queries - 1);
  }

  /// Values become the bias of a head, in units of log2.
  template <class T>
  void set_bias(std::int64_t sample, std::int64_t head) const {
    const T* bias = problem_.distance_bias<T>(head);
    each_run(sample, [&](float* values, std::int64_t count, std::int32_t bucket) {
      std::fill_n(values, count, wide(bias[bucket]) * kLog2E);
    });
  }

  void clear() const { std::fill_n(values_, length(), 0.0f); }

  /// sums[bucket] = the sum of values over its distances, in ascending order of distance.
  void sum(std::int64_t sample, float* sums) const {
    std::fill_n(sums, problem_.distance_buckets(), 0.0f);
    each_run(sample, [&](const float* values, std::int64_t count, std::int32_t bucket) {
      double total = 0;
      for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(values[i]);
      sums[bucket] += static_cast<float>(total);
    });
  }

 private:
  std::int64_t length() const { return problem_.queries + problem_.keys - 1; }

  template <class Body>
  void each_run(std::int64_t sample, const Body& body) const {
    const std::int64_t least = 1 - problem_.queries - problem_.query_offset(sample);
    problem_.distance_runs().each(least, least + length(),
                                  [&](std::int64_t low, std::int64_t high, std::int32_t bucket) {
                                    body(values_ + (low - least), high - low, bucket);
                                  });
  }

  const AttentionProblem& problem_;
  float* values_ = nullptr;
};

}  // namespace megatron::attention
