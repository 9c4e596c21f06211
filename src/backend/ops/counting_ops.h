// CountingOps: operations that compute nothing and count the floating-point operations of matmuls and attention. With
// sizing arenas and counting communicators it plays the program's own step for --dry-run; no tensor is touched.
//
// The workspace of verbs depends on their kernels: each backend has its own counting operations
// (backend/ops/device.h), which know it from the arguments.
#pragma once

#include <algorithm>

#include "backend/ops/ops.h"

namespace megatron {

/// The area that a mask leaves of one head's scores [queries, keys], of queries that `offset` keys are in front of; the
/// pairs on its edges count half, so that a causal square is half of a square.
double visible_pairs(std::int64_t queries, std::int64_t keys, std::int64_t offset, bool causal, std::int64_t window);
/// The part of a square [keys, keys] that this is, without an offset.
double visible_share(std::int64_t keys, bool causal, std::int64_t window);

/// Verbs that do nothing; the fused ones do so one after the other.
class IdleOps : public Ops {
 public:
#define MEGATRON_VERB(name, parameters, arguments) \
  void name parameters override {                  \
    ignore arguments;                              \
  }
  MEGATRON_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB
  void read(ConstTensor, void*) override {}

 private:
  template <class... Arguments>
  static void ignore(const Arguments&...) {}
};

class CountingOps : public IdleOps {
 public:
  double matmul_flops() const { return matmul_flops_; }
  /// By visible_pairs(); of queries with offsets, which are the device's, as if they were the last of the keys.
  double attention_flops() const { return attention_flops_; }

  /// Bytes that forwards of norms and activations have read and written.
  double function_bytes() const { return function_bytes_; }

  void matmul(const MatmulArgs&) override;
  void layer_norm_forward(const LayerNormForwardArgs&) override;
  void bias_activation_forward(const BiasActivationForwardArgs&) override;
  void attention_forward(const AttentionForwardArgs&) override;
  void attention_backward(const AttentionBackwardArgs&) override;

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  void reserve(std::size_t) override {}

 protected:
  /// A verb that was counted works in so much.
  void record_workspace(std::size_t bytes) { workspace_bytes_ = std::max(workspace_bytes_, bytes); }

 private:
  double matmul_flops_ = 0, attention_flops_ = 0, function_bytes_ = 0;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace megatron
