#include "cuda/cuda_ops.h"
#include "ops/product_size.h"

namespace megatron {

void CudaOps::matmul(const MatmulArgs& args) {
  const ProductSize size = product_size(args);
  if (size.m == 0 || size.n == 0) return;
  matmul_.multiply(args);
}

}  // namespace megatron
