// A tensor of any shape [..., c] as a matrix [n, c].
#pragma once

#include "backend/tensor/tensor.h"

namespace megatron {

inline ConstTensor as_matrix(ConstTensor x) {
  const std::int64_t columns = x.dim(x.rank() - 1);
  return x.view({x.elements() / columns, columns});
}

inline Tensor as_matrix(Tensor x) {
  const std::int64_t columns = x.dim(x.rank() - 1);
  return x.view({x.elements() / columns, columns});
}

}  // namespace megatron
