// CountingOps: operations that compute nothing and count the floating-point operations of matmuls and attention. With
// sizing arenas and counting communicators it plays the program's own step for --dry-run; no tensor is touched.
//
// The workspace of verbs depends on their kernels: each backend has its own counting operations
// (ops/device.h), which know it from the arguments.
#pragma once

#include <algorithm>

#include "ops/ops.h"

namespace megatron {

/// The part of the scores' square [keys, keys] that a mask leaves: half of a causal one (its diagonal not counted), and
/// less where a query sees the last `window` positions alone.
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

 private:
  template <class... Arguments>
  static void ignore(const Arguments&...) {}
};

class CountingOps : public IdleOps {
 public:
  double matmul_flops() const { return matmul_flops_; }
  double attention_flops() const { return attention_flops_; }  ///< by visible_share()

  void matmul(const MatmulArgs&) override;
  void attention_forward(const AttentionForwardArgs&) override;
  void attention_backward(const AttentionBackwardArgs&) override;

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  void reserve(std::size_t) override {}

 protected:
  /// A verb that was counted works in so much.
  void record_workspace(std::size_t bytes) { workspace_bytes_ = std::max(workspace_bytes_, bytes); }

 private:
  double matmul_flops_ = 0, attention_flops_ = 0;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace megatron
