// Attention with ordinary f32 arithmetic: for f32, and for 16-bit heads that the tensor cores' kernels are too narrow
// for. Any head size up to kMaximumExactSize.
#pragma once

#include <cuda_runtime.h>

#include "ops/ops.h"

namespace megatron::cuda_attention {

struct Problem;

inline constexpr int kMaximumExactSize = 256;

/// The whole verb, its arguments checked.
void attention_forward_exact(cudaStream_t stream, const Problem& problem, const AttentionForwardArgs& args);
/// All of the verb, after the pre-pass. references, deltas: [b, a, padded_queries], see attention_backward.cu.
void attention_backward_exact(cudaStream_t stream, const Problem& problem, const AttentionBackwardArgs& args,
                              const float* references, const float* deltas, std::int64_t padded_queries);

}  // namespace megatron::cuda_attention
