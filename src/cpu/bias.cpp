#include "cpu/arguments.h"
#include "cpu/cpu_ops.h"

namespace megatron {

void CpuOps::add_bias(const AddBiasArgs& args) {
  const RowsOf size(args.x);
  float* x = f32_elements("add_bias", args.x, size.elements());
  const float* bias = f32_elements("add_bias", args.bias, size.columns);
  for (std::int64_t row = 0; row < size.rows; ++row, x += size.columns) {
#pragma omp simd
    for (std::int64_t i = 0; i < size.columns; ++i) x[i] += bias[i];
  }
}

void CpuOps::column_sum(const ColumnSumArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const float* x = f32_elements("column_sum", args.x, size.elements());
  float* y = f32_elements("column_sum", args.y, columns);
  // Four rows a turn: a quarter of the traffic on y, and shorter chains of additions.
  std::int64_t row = 0;
  for (; row + 4 <= size.rows; row += 4, x += 4 * columns) {
    const float *x0 = x, *x1 = x0 + columns, *x2 = x1 + columns, *x3 = x2 + columns;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) y[i] += (x0[i] + x1[i]) + (x2[i] + x3[i]);
  }
  for (; row < size.rows; ++row, x += columns) {
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) y[i] += x[i];
  }
}

}  // namespace megatron
