// CudaOps: the CUDA backend of Ops, in f32, bf16 and f16. One source file per family of verbs, named as in
// src/backend/cpu.
//
// Owns the scratch memory its kernels need (reserved, or grown on first use and then reused: a steady step allocates
// nothing). Not thread-safe: one instance per rank, used by the thread that made it.
#pragma once

#include <cstddef>

#include "backend/ops/ops.h"
#include "cuda/cuda_device.h"
#include "cuda/matmul_library.h"

namespace megatron {

/// Verbs start kernels on the device's compute stream and return. With the same device every verb gives the same bits
/// in every run: nothing is added up by atomics, and no algorithm is chosen by timing. Random numbers are those of the
/// CPU backend.
class CudaOps final : public Ops {
 public:
  explicit CudaOps(CudaDevice& device) : device_(device), stream_(device.compute_stream()), matmul_(device) {}

#define MEGATRON_VERB(name, parameters, arguments) void name parameters override;
  MEGATRON_VERBS(MEGATRON_VERB)
  MEGATRON_FUSED_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB

  void read(ConstTensor x, void* host) override;

  /// As much as was reserved, more only if that was too little.
  std::size_t workspace_bytes() const override {
    return scratch_.bytes();
  }
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

/// make_cuda_backend() of backend/ops/device.h.
Backend open_cuda_backend(int device_index);

}  // namespace megatron
