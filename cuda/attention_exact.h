// Attention with ordinary f32 arithmetic: for f32, and for 16-bit heads that the tensor cores' kernels are too narrow
// for.
#pragma once

#include <cuda_runtime.h>

#include "backend/ops/ops.h"

namespace megatron::cuda_attention {

struct Problem;

/// The whole verb, its arguments checked. Error(configuration) for heads of more than kMaximumExactSize elements, or
/// that this GPU's blocks have too little shared memory for. Backward: attention_backward.cuh.
void attention_forward_exact(cudaStream_t stream, const Problem& problem, const AttentionForwardArgs& args);

}  // namespace megatron::cuda_attention
