#include <cmath>
#include <limits>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/merge_attention_shape.h"

namespace megatron {

namespace {

/// Weights of what was there and of what is added, and the logarithm of both sums. Of a row without any key that is
/// minus infinity, and its weight 0.
struct MergedRow {
  float before, added, log_sum_exp;
};

MergedRow merge_rows(float log_sum_exp, float added) {
  const float none = -std::numeric_limits<float>::infinity();
  if (added == none) return {1, 0, log_sum_exp};
  if (log_sum_exp == none) return {0, 1, added};
  const float difference = added - log_sum_exp, e = std::exp(-std::abs(difference));
  const float larger = 1 / (1 + e), smaller = e * larger;
  return {difference > 0 ? smaller : larger, difference > 0 ? larger : smaller,
          (difference > 0 ? added : log_sum_exp) + std::log1p(e)};
}

}  // namespace

void CpuOps::merge_attention(const MergeAttentionArgs& args) {
  with_activation_type("merge_attention", args.part.dtype(), [&]<class T>(T) {
    const MergeAttentionShape<T> at(args);
    team_.rows(at.rows(), at.size, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        float& log_sum_exp = at.log_sum_exp[at.statistic_of(row)];
        const MergedRow merged = merge_rows(log_sum_exp, at.part_log_sum_exp[at.statistic_of(row)]);
        log_sum_exp = merged.log_sum_exp;
        float* const out = at.out + row * at.size;
        const T* const part = at.part + row * at.size;
#pragma omp simd
        for (std::int64_t i = 0; i < at.size; ++i) out[i] = merged.before * out[i] + merged.added * wide(part[i]);
      }
    });
  });
}

}  // namespace megatron
