// MatmulLibrary: the matrix multiplications of CudaOps, by cuBLASLt. The tests have a second implementation, which
// multiplies without a GPU.
#pragma once

#include <memory>

#include "backend/ops/ops.h"

namespace megatron {

class CudaDevice;

/// An operation on a product before it is stored. Vectors and matrices are of c's type and begin at multiples of 16
/// bytes.
struct Epilogue {
  enum class Kind { none, bias, gelu, gelu_gradient };

  Kind kind = Kind::none;
  const void* bias = nullptr;  ///< bias: added to each row of c. gelu: the same, optional
  void* gelu_input = nullptr;  ///< [m, n], contiguous, n a multiple of 8. gelu: sets what c is gelu (tanh form) of
                               ///< gelu_gradient: reads it, and multiplies by gelu's derivative there
};

class MatmulLibrary {
 public:
  explicit MatmulLibrary(CudaDevice& device);
  ~MatmulLibrary();
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;

  /// As Ops::matmul; the arguments have been checked. a and b are of one type of f32, bf16, f16; c of that type or f32.
  void multiply(const MatmulArgs& args);
  /// The same with an epilogue, c of a's and b's type, no extent of 0. False: the library has none for these sizes, and
  /// has done nothing.
  bool multiply(const MatmulArgs& args, const Epilogue& epilogue);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatron
