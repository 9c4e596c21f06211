// MatmulLibrary: the matrix multiplications of CudaOps, by cuBLASLt. The tests have a second implementation, which
// multiplies without a GPU.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace megatron {

class CudaDevice;

class MatmulLibrary {
 public:
  explicit MatmulLibrary(CudaDevice& device);
  ~MatmulLibrary();
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;

  /// As Ops::matmul; the arguments have been checked. a and b are of one type of f32, bf16, f16; c of that type or f32.
  void multiply(const MatmulArgs& args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatron
