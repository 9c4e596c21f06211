// The sizes of a matrix product, out of its arguments: the same check in every backend.
#pragma once

#include "backend/ops/ops.h"

namespace megatron {

/// c[m, n] of op(a)[m, k] and op(b)[k, n].
struct ProductSize {
  std::int64_t m, n, k;
};

/// The sizes of arguments that fit together; anything else is an internal error.
ProductSize product_size(const MatmulArgs& args);

}  // namespace megatron
