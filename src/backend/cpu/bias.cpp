#include "backend/cpu/cpu_ops.h"
#include "backend/ops/arguments.h"

namespace megatron {

namespace {

/// Not inline: inside its caller GCC 12 does not vectorise it for f16.
template <class T>
[[gnu::noinline]] void add_to_row(const T* bias, T* x, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) x[i] = narrow<T>(wide(x[i]) + wide(bias[i]));
}

template <class T>
void add_to_rows(const ThreadTeam& team, const AddBiasArgs& args) {
  const RowsOf size(args.x);
  T* x = elements_of<T>("add_bias", args.x, size.elements());
  const T* bias = elements_of<T>("add_bias", args.bias, size.columns);
  team.rows(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) add_to_row(bias, x + row * size.columns, size.columns);
  });
}

/// y[i] += the sum over rows of x[row, i] for `count` columns, `stride` from row to row.
template <class T>
void add_rows(const T* x, std::int64_t rows, std::int64_t stride, float* y, std::int64_t count) {
  // Four rows a turn: a quarter of the traffic on y, and shorter chains of additions.
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * stride) {
    const T *x0 = x, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += (wide(x0[i]) + wide(x1[i])) + (wide(x2[i]) + wide(x3[i]));
  }
  for (; row < rows; ++row, x += stride) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += wide(x[i]);
  }
}

template <class T>
void sum_columns(const ThreadTeam& team, const ColumnSumArgs& args) {
  const RowsOf size(args.x);
  const T* x = elements_of<T>("column_sum", args.x, size.elements());
  float* y = elements_of<float>("column_sum", args.y, size.columns);
  team.columns(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    add_rows(x + first, size.rows, size.columns, y + first, last - first);
  });
}

}  // namespace

void CpuOps::add_bias(const AddBiasArgs& args) {
  with_activation_type("add_bias", args.x.dtype(), [&]<class T>(T) { add_to_rows<T>(team_, args); });
}

void CpuOps::column_sum(const ColumnSumArgs& args) {
  with_activation_type("column_sum", args.x.dtype(), [&]<class T>(T) { sum_columns<T>(team_, args); });
}

}  // namespace megatron
