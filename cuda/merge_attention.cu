// Output and statistics of attention over two parts of the keys become those over both: a warp has a row.
#include <limits>

#include "backend/ops/merge_attention_shape.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"

namespace megatron {

namespace {

/// Weights of what was there and of what is added, and the logarithm of both sums. Of a row without any key that is
/// minus infinity, and its weight 0.
struct MergedRow {
  float before, added, log_sum_exp;
};

__device__ __forceinline__ MergedRow merge_rows(float log_sum_exp, float added) {
  const float none = -std::numeric_limits<float>::infinity();
  if (added == none) return {1, 0, log_sum_exp};
  if (log_sum_exp == none) return {0, 1, added};
  const float difference = added - log_sum_exp, e = expf(-fabsf(difference));
  const float larger = 1 / (1 + e), smaller = e * larger;
  return {difference > 0 ? smaller : larger, difference > 0 ? larger : smaller,
          (difference > 0 ? added : log_sum_exp) + log1pf(e)};
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads) merge_attention_kernel(MergeAttentionShape<T> at) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= at.rows()) return;
  float& log_sum_exp = at.log_sum_exp[at.statistic_of(row)];
  const MergedRow merged = merge_rows(log_sum_exp, at.part_log_sum_exp[at.statistic_of(row)]);
  __syncwarp();  // every lane has read it
  if (threadIdx.x % kWarpThreads == 0) log_sum_exp = merged.log_sum_exp;
  for (std::int64_t column = threadIdx.x % kWarpThreads * width; column < at.size; column += kWarpThreads * width) {
    const std::int64_t element = row * at.size + column;
    auto values = load_floats<width>(at.out + element);
    const auto added = load_floats<width>(at.part + element);
    for (int i = 0; i < width; ++i) {
      values.values[i] = merged.before * values.values[i] + merged.added * added.values[i];
    }
    store_floats(at.out + element, values);
  }
}

}  // namespace

void CudaOps::merge_attention(const MergeAttentionArgs& args) {
  with_activation_type("merge_attention", args.part.dtype(), [&]<class T>(T) {
    const MergeAttentionShape<T> at(args);
    if (at.rows() * at.size == 0) return;
    const bool vectors = vectorizable<float>(at.size, at.out) && vectorizable<T>(at.size, at.part);
    launch(stream_, warp_rows_shape(at.rows()),
           vectors ? merge_attention_kernel<T, Vector<float>::size> : merge_attention_kernel<T, 1>, at);
  });
}

}  // namespace megatron
