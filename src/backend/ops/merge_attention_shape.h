// Shared by the backends for merge_attention: the checked extents of a call. Reads no element.
#pragma once

#include <cstdint>

#include "backend/ops/arguments.h"
#include "backend/ops/ops.h"

namespace megatron {

template <class T>
struct MergeAttentionShape {
  std::int64_t queries, samples, heads, size;
  const T* part;
  const float* part_log_sum_exp;
  float *out, *log_sum_exp;

  /// Throws internal errors for dtypes and shapes that break the contract (MergeAttentionArgs).
  explicit MergeAttentionShape(const MergeAttentionArgs& args) {
    const char* const verb = "merge_attention";
    internal_check(args.part.rank() == 4 && args.out.shape() == args.part.shape(),
                   "merge_attention: output is [s_q, b, a, d]", args.part.shape(), args.out.shape());
    queries = args.part.dim(0);
    samples = args.part.dim(1);
    heads = args.part.dim(2);
    size = args.part.dim(3);
    const Shape by_head = {samples, heads, queries};
    internal_check(args.log_sum_exp.shape() == by_head && args.part_log_sum_exp.shape() == by_head,
                   "merge_attention: log_sum_exp is [b, a, s_q]", args.log_sum_exp.shape(),
                   args.part_log_sum_exp.shape(), by_head);
    part = elements_of<T>(verb, args.part, rows() * size);
    part_log_sum_exp = elements_of<float>(verb, args.part_log_sum_exp, rows());
    out = elements_of<float>(verb, args.out, rows() * size);
    log_sum_exp = elements_of<float>(verb, args.log_sum_exp, rows());
  }

  constexpr std::int64_t rows() const { return queries * samples * heads; }
  /// Where the statistic of row [query, sample, head] is.
  constexpr std::int64_t statistic_of(std::int64_t row) const {
    return row % (samples * heads) * queries + row / (samples * heads);
  }
};

}  // namespace megatron
