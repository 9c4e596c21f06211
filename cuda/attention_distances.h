// T5's bias of distances, laid down for kernels of attention to look up: one number for every distance of every head.
#pragma once

#include <cuda_runtime.h>

#include "backend/ops/ops.h"

namespace megatron::cuda_attention {

struct Distances;

/// Starts to write it to `memory`, of distance_floats(mask); without a bias nothing, and bias is null.
Distances place_distances(cudaStream_t stream, const AttentionMask& mask, float* memory);

}  // namespace megatron::cuda_attention
