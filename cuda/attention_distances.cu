#include "cuda/attention_distances.h"

#include "backend/ops/arguments.h"
#include "cuda/attention_problem.cuh"

namespace megatron::cuda_attention {

namespace {

/// spread[head, reach + distance] = the head's bias of the distance's bucket, in units of log2; blockIdx is (distances,
/// head). The runs are written down by the first block.
template <class T>
__global__ void __launch_bounds__(kBlockThreads) spread_kernel(const DistanceRuns runs, const T* bias, int buckets,
                                                               int reach, float* spread, DistanceRuns::Run* to) {
  const int count = static_cast<int>(runs.end() - runs.begin()), distances = 2 * reach + 1;
  const int i = static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x), head = static_cast<int>(blockIdx.y);
  if (blockIdx.x == 0 && head == 0) {
    for (int run = static_cast<int>(threadIdx.x); run <= count; run += kBlockThreads) {
      to[run] = run < count ? runs.begin()[run] : DistanceRuns::Run{INT32_MAX, 0};
    }
  }
  if (i >= distances) return;
  int run = 0;
  while (run + 1 < count && runs.begin()[run + 1].first <= i - reach) ++run;
  spread[std::int64_t{head} * distances + i] = to_wide(bias[head * buckets + runs.begin()[run].bucket]) * kLog2E;
}

}  // namespace

Distances place_distances(cudaStream_t stream, const AttentionMask& mask, float* memory) {
  if (!mask.distance_bias || mask.distance_bias.elements() == 0) return {};
  const DistanceRuns runs(mask.distance_buckets);
  static_assert(alignof(DistanceRuns::Run) == alignof(float));
  auto* table = reinterpret_cast<DistanceRuns::Run*>(memory);
  float* spread = memory + 2 * (runs.count() + 1);
  const int reach = runs.reach(), buckets = static_cast<int>(mask.distance_buckets.buckets);
  with_activation_type("attention", mask.distance_bias.dtype(), [&]<class T>(T) {
    launch(stream,
           {.grid = grid_of(2 * reach + 1, kBlockThreads, mask.distance_bias.dim(0), 1), .block = dim3(kBlockThreads)},
           spread_kernel<T>, runs, mask.distance_bias.as<T>(), buckets, reach, spread, table);
  });
  return {.bias = spread, .runs = table, .reach = reach, .count = runs.count(), .buckets = buckets};
}

}  // namespace megatron::cuda_attention
