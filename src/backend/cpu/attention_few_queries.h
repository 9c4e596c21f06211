// Attention of a few queries, as decoding has one per sample: scores and sums are made straight from the rows of keys
// and values, which are read once and not packed. Used by attention_forward.cpp; one object per thread and call.
#pragma once

#include "backend/cpu/attention_tile.h"

namespace megatron::attention {

/// More queries than these are worth packing keys for.
inline constexpr std::int64_t kFewQueries = 4;

inline bool has_few_queries(const AttentionForwardArgs& args, const AttentionProblem& problem) {
  return problem.queries <= kFewQueries && args.dropout.probability == 0;
}

inline std::int64_t score_stride(const AttentionProblem& problem) {
  return Pieces::padded(problem.keys + kLanes);
}

/// Scratch of one thread.
inline std::size_t few_queries_bytes(const AttentionProblem& problem) {
  const std::int64_t rows = problem.heads_per_key_head * problem.queries;
  return sizeof(float) *
         static_cast<std::size_t>(Pieces::padded(rows * score_stride(problem)) +
                                  2 * Pieces::padded(rows * problem.head_size) + Pieces::padded(problem.head_size));
}

/// T: the elements of queries, keys, values and output; everything in between is float.
template <class T>
class FewQueries {
 public:
  FewQueries(const AttentionForwardArgs& args, const AttentionProblem& problem, std::byte* memory)
      : args_(args), problem_(problem), rows_(problem.heads_per_key_head * problem.queries) {
    Pieces pieces(memory);
    scores_ = pieces.take(rows_ * score_stride(problem));
    queries_ = pieces.take(rows_ * problem.head_size);
    outputs_ = pieces.take(rows_ * problem.head_size);
    row_ = pieces.take(problem.head_size);
  }

  /// All heads that share one key head of one sample.
  void run(std::int64_t sample, std::int64_t key_head) {
    const std::int64_t size = problem_.head_size, first_head = key_head * problem_.heads_per_key_head;
    const QueryBlock block = problem_.query_block(sample, 0);
    for (std::int64_t row = 0; row < rows_; ++row) {
      copy_rows(1, size, args_.scale * kLog2E, head_rows<T>(args_.q, sample, first_head + head_of(row), query_of(row)),
                Rows<float>{queries_ + row * size, size});
    }
    multiply_keys(sample, key_head, block.all);
    for (std::int64_t row = 0; row < rows_; ++row) softmax(block, first_head + head_of(row), row);
    add_values(sample, key_head, block.all);
    for (std::int64_t row = 0; row < rows_; ++row) {
      copy_rows(1, size, 1.0f, Rows<float>{outputs_ + row * size, size},
                head_rows<T>(args_.out, sample, first_head + head_of(row), query_of(row)));
    }
  }

 private:
  std::int64_t head_of(std::int64_t row) const { return row / problem_.queries; }
  std::int64_t query_of(std::int64_t row) const { return row % problem_.queries; }
  float* scores(std::int64_t row) const { return scores_ + row * score_stride(problem_); }

  /// A row of keys or values as floats: there itself, or widened.
  const float* floats(const T* row) {
    if constexpr (std::is_same_v<T, float>) {
      return row;
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < problem_.head_size; ++i) row_[i] = wide(row[i]);
      return row_;
    }
  }

  /// A row that is read soon. There need not be one.
  void ask_for(const T* row) const {
    prefetch(row, static_cast<std::size_t>(problem_.head_size) * sizeof(T));
  }

  float product(const float* a, const float* b) const {
    Lanes sum{};
    std::int64_t i = 0;
    for (; i + kLanes <= problem_.head_size; i += kLanes) sum += load(a + i) * load(b + i);
    float rest = 0;
    for (; i < problem_.head_size; ++i) rest += a[i] * b[i];
    return sum_of(sum) + rest;
  }

  void multiply_keys(std::int64_t sample, std::int64_t key_head, KeyRange keys) {
    const auto all = head_rows<T>(args_.k, sample, key_head, 0), next = head_rows<T>(args_.v, sample, key_head, 0);
    for (std::int64_t key = keys.low; key < keys.high; ++key) {
      ask_for(next.data + key * next.stride);
      const float* values = floats(all.data + key * all.stride);
      for (std::int64_t row = 0; row < rows_; ++row) {
        scores(row)[key] = product(queries_ + row * problem_.head_size, values);
      }
    }
  }

  /// Scores become probabilities, 0 where nothing is visible.
  void softmax(const QueryBlock& block, std::int64_t head, std::int64_t row) {
    const std::int64_t query = query_of(row);
    const KeyRange visible = block.visible[static_cast<std::size_t>(query)];
    const Columns columns{visible.low, visible.high};
    float* const values = scores(row);
    float& log_sum_exp =
        args_.log_sum_exp.as<float>()[(block.sample * problem_.heads + head) * problem_.queries + query];
    log_sum_exp = -kInfinity;
    if (!columns.empty()) {
      if (problem_.softcap() > 0) cap_row<false>(values, columns, problem_.softcap(), nullptr);
      const float slope = problem_.slope(head);
      if (slope != 0) add_slope(values, columns, slope * kLog2E, -(problem_.query_offset(block.sample) + query));
      if (problem_.has_distance_bias()) add_distance_bias(values, columns, block.sample, head, query);
      close_row(values, columns);
      const float maximum = row_maximum(values, columns, -kInfinity);
      const float sum = exponentiate(values, columns, maximum);
      for (std::int64_t key = columns.low; key < columns.high; ++key) values[key] /= sum;
      log_sum_exp = maximum * kLn2 + std::log(sum);
    }
    // Other rows may see keys that this one does not.
    if (!block.all.empty()) clear_outside(values, columns, block.all.high);
  }

  void add_distance_bias(float* values, Columns columns, std::int64_t sample, std::int64_t head, std::int64_t query) {
    const std::int64_t position = problem_.query_offset(sample) + query;
    const T* bias = problem_.template distance_bias<T>(head);
    problem_.distance_runs().each(columns.low - position, columns.high - position,
                                  [&](std::int64_t low, std::int64_t high, std::int32_t bucket) {
                                    const float value = wide(bias[bucket]) * kLog2E;
                                    for (std::int64_t j = low; j < high; ++j) values[position + j] += value;
                                  });
  }

  void add_values(std::int64_t sample, std::int64_t key_head, KeyRange keys) {
    const std::int64_t size = problem_.head_size;
    std::fill_n(outputs_, rows_ * size, 0.0f);
    const auto all = head_rows<T>(args_.v, sample, key_head, 0);
    const bool last = key_head + 1 == problem_.key_heads;
    const auto next = head_rows<T>(args_.k, last ? sample + 1 : sample, last ? 0 : key_head + 1, 0);
    for (std::int64_t key = keys.low; key < keys.high; ++key) {
      ask_for(next.data + key * next.stride);
      const float* values = floats(all.data + key * all.stride);
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float probability = scores(row)[key];
        float* output = outputs_ + row * size;
#pragma omp simd
        for (std::int64_t i = 0; i < size; ++i) output[i] += probability * values[i];
      }
    }
  }

  const AttentionForwardArgs& args_;
  const AttentionProblem& problem_;
  std::int64_t rows_;  // queries of all heads that share the key head
  float *scores_, *queries_, *outputs_, *row_;
};

}  // namespace megatron::attention
