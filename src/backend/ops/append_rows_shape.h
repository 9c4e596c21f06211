// Shared by the backends for append_rows: the checked extents of a call. Reads no element.
#pragma once

#include <cstdint>

#include "backend/ops/arguments.h"
#include "backend/ops/ops.h"

namespace megatron {

struct AppendRowsShape {
  std::int64_t rows, samples, heads, size, capacity;
  const std::int32_t* offsets;  ///< [samples], or null

  /// Throws internal errors for dtypes and shapes that break the contract (AppendRowsArgs).
  explicit AppendRowsShape(const AppendRowsArgs& args) {
    internal_check(args.x.rank() == 4 && args.y.rank() == 4, "append_rows: x and y are [rows, b, heads, d]",
                   args.x.shape(), args.y.shape());
    rows = args.x.dim(0);
    samples = args.x.dim(1);
    heads = args.x.dim(2);
    size = args.x.dim(3);
    capacity = args.y.dim(0);
    internal_check(args.x.dtype() == args.y.dtype(), "append_rows: x and y are of one dtype", args.x.dtype(),
                   args.y.dtype());
    internal_check(args.y.dim(1) == samples && args.y.dim(2) == heads && args.y.dim(3) == size,
                   "append_rows: x and y differ in more than their rows", args.x.shape(), args.y.shape());
    internal_check(size <= 1 || (args.x.stride(3) == 1 && args.y.stride(3) == 1), "append_rows: strided elements",
                   args.x.stride(3), args.y.stride(3));
    offsets = optional_elements_of<std::int32_t>("append_rows", args.offsets, samples);
  }
};

}  // namespace megatron
