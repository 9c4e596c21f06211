// Sums and maxima in rank order: what makes reductions the same bits on every rank and in every run.
//
// Used by the communicators that reduce on the host (MPI and threads). Knows nothing of ranks beyond their order.
#pragma once

#include <cstdint>
#include <span>

#include "distributed/comm/communicator.h"

namespace megatron {

/// destination[i] (sets) = ((sources[0][i] + sources[1][i]) + sources[2][i]) + ..., or the maximum (NaN if any is NaN).
/// Every source has `elements` of `type` (all but u8); destination may be one of the sources. 16-bit floats are added
/// up in f32 over all sources and rounded once, at the end.
void reduce_in_rank_order(DType type, Reduce reduce, std::span<const void* const> sources, void* destination,
                          std::int64_t elements);

}  // namespace megatron
