// The second stage of sums in two stages: blocks have left partial sums in scratch memory, which are added up here in
// the order of their numbering.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace megatron {

/// y0[c] += the sum over slices of partial[slice, 0, c], and y1[c] of partial[slice, 1, c]; without y1, partial is
/// [slices, columns].
void add_slices(cudaStream_t stream, const float* partial, std::int64_t slices, std::int64_t columns, float* y0,
                float* y1 = nullptr);

/// total[0] += the sum of partial[count].
void add_partial_sums(cudaStream_t stream, const double* partial, std::int64_t count, double* total);

}  // namespace megatron
