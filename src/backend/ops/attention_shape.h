// AttentionShape: the extents of one attention call, with everything checked that the contract (AttentionForwardArgs,
// AttentionMask in ops.h) says of its tensors. Shared by all backends, forward and backward. Reads no element.
#pragma once

#include <cstdint>

#include "backend/ops/ops.h"

namespace megatron {

class AttentionShape {
 public:
  /// `verb` is for error messages. Throws internal errors for dtypes and shapes that break the contract.
  AttentionShape(const char* verb, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                 const AttentionMask& mask, const Dropout& dropout);

  /// `x` must be [s_q, b, a, d] (queries) or [s_k, b, a_kv, d] (keys) of the queries' dtype, contiguous in d.
  void check_queries(const ConstTensor& x) const { check(x, queries, heads); }
  void check_keys(const ConstTensor& x) const { check(x, keys, key_heads); }
  void check_log_sum_exp(const ConstTensor& x) const;
  /// The gradient of `mask`'s distance_bias, optional.
  void check_distance_gradient(const Tensor& x, const AttentionMask& mask) const;

  std::int64_t queries, keys, samples, heads, key_heads, head_size;
  std::int64_t heads_per_key_head;

 private:
  void check(const ConstTensor& x, std::int64_t rows, std::int64_t x_heads) const;

  const char* verb_;
  DType type_;
};

}  // namespace megatron
