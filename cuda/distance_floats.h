// Workspace of a bias of distances: known to the backend's kernels, and to plans, which are made without CUDA.
#pragma once

#include <cstdint>

#include "backend/ops/ops.h"
#include "base/core/distance_buckets.h"

namespace megatron {

/// In floats: a number for every distance of every head, and the runs of distances with one bucket, with one more that
/// ends them. None without a bias.
inline std::int64_t distance_floats(const AttentionMask& mask) {
  static_assert(sizeof(DistanceRuns::Run) == 2 * sizeof(float));
  if (!mask.distance_bias) return 0;
  const DistanceRuns runs(mask.distance_buckets);
  return mask.distance_bias.dim(0) * (2 * std::int64_t{runs.reach()} + 1) + 2 * (runs.count() + 1);
}

}  // namespace megatron
