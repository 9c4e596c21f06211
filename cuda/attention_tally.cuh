// The gradient of a bias of distances, on the way: what one warp sums up of the gradients of scores, by bucket. Every
// sum is made in one order, without atomic additions; the warps' tallies are added up afterwards.
#pragma once

#include "cuda/attention_problem.cuh"

namespace megatron::cuda_attention {

/// The tally of one head, over its tiles of keys in ascending order. Lane i has buckets i, i + 32, ...
class DistanceTally {
 public:
  /// Adds values[i], of the distance distance_of(i), of every lane. All distances are from low to high, and the least
  /// is not less than the last time's.
  template <int kValues, class DistanceOf>
  __device__ __forceinline__ void add(const float (&values)[kValues], const Distances& distances, int low, int high,
                                      const DistanceOf& distance_of) {
    const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
    while (distances.runs[run_ + 1].first <= low) ++run_;
#pragma unroll 1
    for (int run = run_; run < distances.count && distances.runs[run].first <= high; ++run) {
      const int first = distances.runs[run].first, end = distances.runs[run + 1].first;
      const int bucket = distances.runs[run].bucket;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int distance = distance_of(i);
        if (first <= distance && distance < end) sum += values[i];
      }
      sum = warp_sum(sum);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        if (bucket == lane + 32 * i) sums_[i] += sum;
      }
    }
  }

  /// Adds a matrix of scores' gradients with queries as rows; first_distance: the distance of its first element.
  template <int kRowTiles, int kColumnTiles>
  __device__ __forceinline__ void add(const float (&dscores)[kRowTiles][kColumnTiles][4], const Distances& distances,
                                      int first_distance) {
    // A lane's element [t][n][2 half + i] has the same distance as all others of the lane with the same n - 2 t - half
    // and i.
    constexpr int kBefore = 2 * kRowTiles - 1, kDiagonals = kBefore + kColumnTiles;
    float diagonals[2 * kDiagonals] = {};
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) diagonals[2 * (n - 2 * t - i / 2 + kBefore) + i % 2] += dscores[t][n][i];
      }
    }
    const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
    const int own = first_distance + lane % 4 * 2 - lane / 4 - 8 * kBefore;
    add(diagonals, distances, first_distance - (16 * kRowTiles - 1), first_distance + 8 * kColumnTiles - 1,
        [&](int i) { return own + i / 2 * 8 + i % 2; });
  }

  /// Sets this warp's row of sums[b, rows, a, buckets], unless that is null: blockIdx is (rows, head, sample), and
  /// every warp of the launch has a row.
  __device__ void store(float* sums, const Problem& problem) const {
    if (sums == nullptr) return;
    const int lane = static_cast<int>(threadIdx.x % kWarpThreads), buckets = problem.distances.buckets;
    const std::int64_t warps = blockDim.x / kWarpThreads;
    const std::int64_t row = (std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x) * warps + threadIdx.x / kWarpThreads;
    float* own = sums + (row * problem.heads + blockIdx.y) * buckets;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      if (lane + 32 * i < buckets) own[lane + 32 * i] = sums_[i];
    }
  }

 private:
  static constexpr int kSums = (DistanceBuckets::kMostBuckets + 31) / 32;
  float sums_[kSums] = {};
  int run_ = 0;
};

}  // namespace megatron::cuda_attention
