// CudaOps: the CUDA backend of Ops, in f32, bf16 and f16. One source file per family of verbs, named as in src/cpu.
//
// Owns the scratch memory its kernels need (reserved, or grown on first use and then reused: a steady step allocates
// nothing). Not thread-safe: one instance per rank, used by the thread that made it.
#pragma once

#include <cstddef>

#include "cuda/cuda_device.h"
#include "cuda/matmul_library.h"
#include "ops/ops.h"

namespace megatron {

/// Verbs start kernels on the device's compute stream and return. With the same device every verb gives the same bits
/// in every run: nothing is added up by atomics, and no algorithm is chosen by timing. Random numbers are those of the
/// CPU backend.
class CudaOps final : public Ops {
 public:
  explicit CudaOps(CudaDevice& device) : device_(device), stream_(device.compute_stream()), matmul_(device) {}

  // matmul.cpp
  void matmul(const MatmulArgs&) override;
  void linear_forward(const LinearForwardArgs&) override;
  void linear_activation_forward(const LinearActivationForwardArgs&) override;
  void linear_activation_backward(const LinearActivationBackwardArgs&) override;
  // bias.cu
  void add_bias(const AddBiasArgs&) override;
  void column_sum(const ColumnSumArgs&) override;
  // activation.cu
  void bias_activation_forward(const BiasActivationForwardArgs&) override;
  void bias_activation_backward(const BiasActivationBackwardArgs&) override;
  // dropout.cu
  void dropout_add_forward(const DropoutAddForwardArgs&) override;
  void dropout_add_backward(const DropoutAddBackwardArgs&) override;
  // norm_forward.cu, norm_backward.cu
  void layer_norm_forward(const LayerNormForwardArgs&) override;
  void layer_norm_backward(const LayerNormBackwardArgs&) override;
  // rotary.cu
  void rotary(const RotaryArgs&) override;
  // append_rows.cu
  void append_rows(const AppendRowsArgs&) override;
  // attention_forward.cu, attention_backward.cu
  void attention_forward(const AttentionForwardArgs&) override;
  void attention_backward(const AttentionBackwardArgs&) override;
  // embedding.cu
  void embedding_forward(const EmbeddingForwardArgs&) override;
  void embedding_backward(const EmbeddingBackwardArgs&) override;
  // cross_entropy.cu
  void cross_entropy_local(const CrossEntropyLocalArgs&) override;
  void cross_entropy_rescale(const CrossEntropyRescaleArgs&) override;
  void cross_entropy_loss(const CrossEntropyLossArgs&) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs&) override;
  // route.cu
  void route_forward(const RouteForwardArgs&) override;
  void route_losses(const RouteLossesArgs&) override;
  void route_backward(const RouteBackwardArgs&) override;
  // route_tally.cu
  void tally_routes(const TallyRoutesArgs&) override;
  void shift_choice_bias(const ShiftChoiceBiasArgs&) override;
  // plan_routes.cu
  void plan_routes(const PlanRoutesArgs&) override;
  // expert_rows.cu
  void dispatch_rows(const DispatchRowsArgs&) override;
  void combine_rows(const CombineRowsArgs&) override;
  void combine_gates_backward(const CombineGatesBackwardArgs&) override;
  // mixed_rows.cu
  void mix_rows_forward(const MixRowsForwardArgs&) override;
  void mix_rows_backward(const MixRowsBackwardArgs&) override;
  void jitter_rows(const JitterRowsArgs&) override;
  // optimizer.cu
  void adamw(const AdamWArgs&) override;
  void sgd(const SgdArgs&) override;
  void square_sum(const SquareSumArgs&) override;
  void clip_factor(const ClipFactorArgs&) override;
  // elementwise.cu
  void normal(const NormalArgs&) override;
  void fill(Tensor y, double value) override;
  void copy(ConstTensor x, Tensor y) override;
  void add(ConstTensor x, Tensor y) override;
  void scale(Tensor y, double factor) override;
  // cuda_ops.cpp
  /// What is set aside for it: as much as was reserved, more only if that was too little.
  void read(ConstTensor x, void* host) override;

  std::size_t workspace_bytes() const override { return scratch_.bytes(); }
  void reserve(std::size_t bytes) override;

 private:
  /// At least `bytes` of device memory, valid until the next call; grows, never shrinks.
  std::byte* scratch(std::size_t bytes);
  float* float_scratch(std::int64_t count) {
    return reinterpret_cast<float*>(scratch(static_cast<std::size_t>(count) * sizeof(float)));
  }

  CudaDevice& device_;
  cudaStream_t stream_;
  MatmulLibrary matmul_;
  Buffer scratch_;
};

/// make_cuda_backend() of ops/device.h.
Backend open_cuda_backend(int device_index);

}  // namespace megatron
