#include "cpu/arguments.h"
#include "cpu/cpu_ops.h"

namespace megatron {

void CpuOps::add_bias(const AddBiasArgs& args) {
  const RowsOf size(args.x);
  float* x = f32_elements("add_bias", args.x, size.elements());
  const float* bias = f32_elements("add_bias", args.bias, size.columns);
  team_.rows(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      float* values = x + row * size.columns;
#pragma omp simd
      for (std::int64_t i = 0; i < size.columns; ++i) values[i] += bias[i];
    }
  });
}

namespace {

/// y[i] += the sum over rows of x[row, i] for `count` columns, `stride` from row to row.
void add_rows(const float* x, std::int64_t rows, std::int64_t stride, float* y, std::int64_t count) {
  // Four rows a turn: a quarter of the traffic on y, and shorter chains of additions.
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * stride) {
    const float *x0 = x, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += (x0[i] + x1[i]) + (x2[i] + x3[i]);
  }
  for (; row < rows; ++row, x += stride) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += x[i];
  }
}

}  // namespace

void CpuOps::column_sum(const ColumnSumArgs& args) {
  const RowsOf size(args.x);
  const float* x = f32_elements("column_sum", args.x, size.elements());
  float* y = f32_elements("column_sum", args.y, size.columns);
  team_.columns(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    add_rows(x + first, size.rows, size.columns, y + first, last - first);
  });
}

}  // namespace megatron
