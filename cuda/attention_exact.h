// Attention with ordinary f32 arithmetic: for f32, and for 16-bit heads that the tensor cores' kernels are too narrow
// for. Any head size up to kMaximumExactSize.
#pragma once

#include <cuda_runtime.h>

#include "ops/ops.h"

namespace megatron::cuda_attention {

struct Problem;

inline constexpr int kMaximumExactSize = 256;

/// The whole verb, its arguments checked. Backward: attention_backward.cuh.
void attention_forward_exact(cudaStream_t stream, const Problem& problem, const AttentionForwardArgs& args);
}  // namespace megatron::cuda_attention
