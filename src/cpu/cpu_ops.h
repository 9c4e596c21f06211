// CpuOps: the CPU backend of Ops, fp32, on a team of threads per rank. One source file per family of verbs. With the
// same number of threads every verb gives the same bits in every run; with another number all but matmul still do, and
// matmul agrees to rounding (the library it calls chooses its order of additions by the size of its part). Owns its
// team and the scratch memory its kernels need (cpu/working_memory.h; reserved, or grown on first use and then reused:
// a steady step allocates nothing). Not thread-safe: one instance per rank, used by the thread that made it.
#pragma once

#include <cstddef>

#include "cpu/thread_team.h"
#include "ops/ops.h"
#include "tensor/memory.h"

namespace megatron {

class CpuOps final : public Ops {
 public:
  /// `threads` per rank, at least 1. Errors are those of ThreadTeam.
  explicit CpuOps(Allocator& allocator, int threads = 1) : allocator_(allocator), team_(threads) {}

  // matmul.cpp
  void matmul(const MatmulArgs&) override;
  // bias.cpp
  void add_bias(const AddBiasArgs&) override;
  void column_sum(const ColumnSumArgs&) override;
  // activation.cpp
  void bias_activation_forward(const BiasActivationForwardArgs&) override;
  void bias_activation_backward(const BiasActivationBackwardArgs&) override;
  // dropout.cpp
  void dropout_add_forward(const DropoutAddForwardArgs&) override;
  void dropout_add_backward(const DropoutAddBackwardArgs&) override;
  // norm.cpp
  void layer_norm_forward(const LayerNormForwardArgs&) override;
  void layer_norm_backward(const LayerNormBackwardArgs&) override;
  // rotary.cpp
  void rotary(const RotaryArgs&) override;
  // append_rows.cpp
  void append_rows(const AppendRowsArgs&) override;
  // attention_forward.cpp, attention_backward.cpp
  void attention_forward(const AttentionForwardArgs&) override;
  void attention_backward(const AttentionBackwardArgs&) override;
  // embedding.cpp
  void embedding_forward(const EmbeddingForwardArgs&) override;
  void embedding_backward(const EmbeddingBackwardArgs&) override;
  // cross_entropy.cpp
  void cross_entropy_local(const CrossEntropyLocalArgs&) override;
  void cross_entropy_rescale(const CrossEntropyRescaleArgs&) override;
  void cross_entropy_loss(const CrossEntropyLossArgs&) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs&) override;
  // route.cpp
  void route_forward(const RouteForwardArgs&) override;
  void route_losses(const RouteLossesArgs&) override;
  void route_backward(const RouteBackwardArgs&) override;
  // route_tally.cpp
  void tally_routes(const TallyRoutesArgs&) override;
  void shift_choice_bias(const ShiftChoiceBiasArgs&) override;
  // plan_routes.cpp
  void plan_routes(const PlanRoutesArgs&) override;
  // expert_rows.cpp
  void dispatch_rows(const DispatchRowsArgs&) override;
  void combine_rows(const CombineRowsArgs&) override;
  void combine_gates_backward(const CombineGatesBackwardArgs&) override;
  // mixed_rows.cpp
  void mix_rows_forward(const MixRowsForwardArgs&) override;
  void mix_rows_backward(const MixRowsBackwardArgs&) override;
  void jitter_rows(const JitterRowsArgs&) override;
  // optimizer.cpp
  void adamw(const AdamWArgs&) override;
  void sgd(const SgdArgs&) override;
  void square_sum(const SquareSumArgs&) override;
  void clip_factor(const ClipFactorArgs&) override;
  // elementwise.cpp
  void normal(const NormalArgs&) override;
  void fill(Tensor y, double value) override;
  void copy(ConstTensor x, Tensor y) override;
  void add(ConstTensor x, Tensor y) override;
  void scale(Tensor y, double factor) override;
  // working_memory.cpp
  void read(ConstTensor x, void* host) override;

  std::size_t workspace_bytes() const override { return scratch_used_; }
  void reserve(std::size_t bytes) override;

 private:
  /// At least `bytes` of scratch, valid until the next call; grows, never shrinks.
  std::byte* scratch(std::size_t bytes);

  Allocator& allocator_;
  ThreadTeam team_;
  Buffer scratch_;
  std::size_t scratch_used_ = 0;  // the most that was asked for
};

}  // namespace megatron
