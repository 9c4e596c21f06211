// Attention's products in f32: all elements are packed as floats, and oneDNN multiplies them. For f32 and fp16, and for
// bf16 where the processor's own products are not used; attention_native.h has the same members for those.
#pragma once

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/sgemm.h"

namespace megatron::attention {

/// T: elements of queries, keys and values.
template <class T>
class WidenedForward {
 public:
  using Element = T;
  /// Floats from one row of a query block's output, or of its gradient, to the next.
  static std::int64_t row_stride(const AttentionProblem& problem) { return problem.head_size; }
  /// Scratch.
  static std::int64_t floats(const AttentionProblem& problem) {
    return Pieces::padded(kQueryBlock * problem.head_size) + 2 * Pieces::padded(problem.keys * problem.head_size);
  }

  /// scale: of the scores.
  WidenedForward(const AttentionProblem& problem, float scale, Pieces& pieces) : problem_(problem), scale_(scale) {
    queries_ = pieces.take(kQueryBlock * problem.head_size);
    keys_ = pieces.take(problem.keys * problem.head_size);
    values_ = pieces.take(problem.keys * problem.head_size);
  }

  /// All keys and values of one head of a sample.
  void load_keys(std::int64_t, Rows<const T> keys, Rows<const T> values) {
    const std::int64_t size = problem_.head_size;
    copy_rows(problem_.keys, size, 1.0f, keys, Rows<float>{keys_, size});
    copy_rows(problem_.keys, size, 1.0f, values, Rows<float>{values_, size});
  }

  /// A block of queries.
  void load_queries(std::int64_t rows, Rows<const T> queries) {
    copy_rows(rows, problem_.head_size, scale_ * kLog2E, queries, Rows<float>{queries_, problem_.head_size});
  }

  /// Where the block's first tile of keys begins, at `low` or before.
  std::int64_t first_key(std::int64_t low) const { return low; }

  /// scores[rows, keys of the tile] = queries · keysᵀ, scaled, in units of log2.
  void multiply_keys(std::int64_t rows, KeyRange tile, float* scores) const {
    const std::int64_t size = problem_.head_size;
    sgemm(false, true, rows, tile.high - tile.low, size, 1.0f, {queries_, size}, {keys_ + tile.low * size, size}, 0.0f,
          {scores, kTileStride});
  }

  /// output[rows, head size] += probabilities[rows, keys of the tile] · values.
  void add_values(std::int64_t rows, KeyRange tile, const float* probabilities, float* output) {
    const std::int64_t size = problem_.head_size;
    sgemm(false, false, rows, size, tile.high - tile.low, 1.0f, {probabilities, kTileStride},
          {values_ + tile.low * size, size}, 1.0f, {output, size});
  }

 private:
  const AttentionProblem& problem_;
  float scale_;
  float *queries_, *keys_, *values_;
};

template <class T>
class WidenedBackward {
 public:
  using Element = T;
  static std::int64_t row_stride(const AttentionProblem& problem) { return problem.head_size; }
  static std::int64_t floats(const AttentionProblem& problem) {
    return 2 * Pieces::padded(kQueryBlock * problem.head_size) + 4 * Pieces::padded(problem.keys * problem.head_size);
  }

  WidenedBackward(const AttentionProblem& problem, float scale, Pieces& pieces) : problem_(problem), scale_(scale) {
    for (float** piece : {&queries_, &doutput_}) *piece = pieces.take(kQueryBlock * problem.head_size);
    for (float** piece : {&keys_, &values_, &dkeys_, &dvalues_}) *piece = pieces.take(problem.keys * problem.head_size);
  }

  /// All keys and values of one head of a sample; their gradients become 0.
  void load_keys(std::int64_t, Rows<const T> keys, Rows<const T> values) {
    const std::int64_t size = problem_.head_size;
    copy_rows(problem_.keys, size, 1.0f, keys, Rows<float>{keys_, size});
    copy_rows(problem_.keys, size, 1.0f, values, Rows<float>{values_, size});
    std::fill_n(dkeys_, problem_.keys * size, 0.0f);
    std::fill_n(dvalues_, problem_.keys * size, 0.0f);
  }

  void load_queries(std::int64_t rows, Rows<const T> queries, Rows<const T> doutput) {
    const std::int64_t size = problem_.head_size;
    copy_rows(rows, size, scale_ * kLog2E, queries, Rows<float>{queries_, size});
    copy_rows(rows, size, 1.0f, doutput, Rows<float>{doutput_, size});
  }

  std::int64_t first_key(std::int64_t low) const { return low; }

  /// scores = queries · keysᵀ, scaled, in units of log2; dprobabilities = doutput · valuesᵀ.
  void multiply_keys(std::int64_t rows, KeyRange tile, float* scores, float* dprobabilities) const {
    const std::int64_t size = problem_.head_size, width = tile.high - tile.low, offset = tile.low * size;
    sgemm(false, true, rows, width, size, 1.0f, {queries_, size}, {keys_ + offset, size}, 0.0f, {scores, kTileStride});
    sgemm(false, true, rows, width, size, 1.0f, {doutput_, size}, {values_ + offset, size}, 0.0f,
          {dprobabilities, kTileStride});
  }

  /// Adds the tile's parts to the gradients of keys, values, and queries, the latter but for the scale. dscores: the
  /// gradient of the scaled scores.
  void add_gradients(std::int64_t rows, KeyRange tile, const float* probabilities, const float* dscores,
                     float* dqueries) {
    const std::int64_t size = problem_.head_size, width = tile.high - tile.low, offset = tile.low * size;
    const ConstMatrix weights{probabilities, kTileStride}, gradient{dscores, kTileStride};
    sgemm(true, false, width, size, rows, 1.0f, weights, {doutput_, size}, 1.0f, {dvalues_ + offset, size});
    sgemm(true, false, width, size, rows, 1.0f, gradient, {queries_, size}, 1.0f, {dkeys_ + offset, size});
    sgemm(false, false, rows, size, width, 1.0f, gradient, {keys_ + offset, size}, 1.0f, {dqueries, size});
  }

  void store_key_gradients(Rows<T> dkeys, Rows<T> dvalues) const {
    const std::int64_t size = problem_.head_size;
    // The packed queries carried scale · log2(e); the gradient wants scale.
    copy_rows(problem_.keys, size, kLn2, Rows<float>{dkeys_, size}, dkeys);
    copy_rows(problem_.keys, size, 1.0f, Rows<float>{dvalues_, size}, dvalues);
  }

 private:
  const AttentionProblem& problem_;
  float scale_;
  float *queries_, *doutput_, *keys_, *values_, *dkeys_, *dvalues_;
};

}  // namespace megatron::attention
