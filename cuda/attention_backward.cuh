// What attention's backward consists of: statistics of every query (attention_backward.cu), then the gradients, on
// tensor cores or by ordinary arithmetic.
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
  bool vectors;  ///< rows of all of them can be read and written by 16 bytes
};

/// On tensor cores (attention_backward_tiles.cu): 16-bit T, heads of at most kMaximumTileSize. block_bytes: shared
/// memory that a block can have.
template <class T>
void attention_backward_tiles(cudaStream_t stream, const BackwardParameters<T>& parameters, std::size_t block_bytes);

/// By ordinary arithmetic (attention_exact.cu): any T. Error(configuration) for heads that are too large, as forward.
template <class T>
void attention_backward_exact(cudaStream_t stream, const BackwardParameters<T>& parameters);

}  // namespace megatron::cuda_attention
