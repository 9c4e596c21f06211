// The steps of attention's backward: statistics of every query (attention_backward.cu), then the gradients, on tensor
// cores or by ordinary arithmetic.
#pragma once

#include "cuda/attention_problem.cuh"

namespace megatron::cuda_attention {

inline constexpr int kQueryPadding = 128;  ///< statistics are there for a multiple of this number of queries

template <class T>
struct BackwardParameters {
  Problem problem;
  Heads<const T> q, k, v, dout;
  Heads<T> dq, dk, dv;
  const float *references, *deltas;  ///< [b, a, padded_queries]
  std::int64_t padded_queries;
  /// [b, own rows, a, buckets], of every warp for itself: what the gradient of a bias of distances is the sum of, null
  /// if it is not wanted. Own rows: see distance_rows().
  float* distance_sums;
  bool vectors;  ///< rows of all of them can be read and written by 16 bytes
};

/// Warps that make the queries' gradients of one head: 4 of a block of 128 on tensor cores, or 8 of a block of 32.
inline std::int64_t distance_rows(std::int64_t queries, bool tiles) {
  return tiles ? (queries + 127) / 128 * 4 : (queries + 31) / 32 * 8;
}

/// On tensor cores (attention_backward_tiles.cu), where has_tiles(). block_bytes: shared memory that a block can have.
template <class T>
void attention_backward_tiles(cudaStream_t stream, const BackwardParameters<T>& parameters, std::size_t block_bytes);

/// By ordinary arithmetic (attention_exact.cu): any T. Error(configuration) for heads that are too large, as forward.
template <class T>
void attention_backward_exact(cudaStream_t stream, const BackwardParameters<T>& parameters);

}  // namespace megatron::cuda_attention
