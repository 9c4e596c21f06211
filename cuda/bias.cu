#include "backend/ops/arguments.h"
#include "cuda/column_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/sums.cuh"

namespace megatron {

namespace {

template <class T, int width>
__global__ void __launch_bounds__(kTileThreads)
    add_bias_kernel(const T* bias, T* x, std::int64_t rows, std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  if (!tile.inside()) return;
  const auto bias_values = load_floats<width>(bias + tile.column);
  tile.template for_each_row<4>([&](std::int64_t at, std::int64_t) { return load_vector<width>(x + at); },
                                [&](std::int64_t at, std::int64_t, const Vector<T, width>& loaded) {
                                  auto sum = to_floats(loaded);
                                  for (int i = 0; i < width; ++i) sum.values[i] += bias_values.values[i];
                                  store_floats(x + at, sum);
                                });
}

template <class T, int width>
__global__ void __launch_bounds__(kTileThreads)
    column_sum_kernel(const T* x, float* partial, std::int64_t rows, std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  Vector<float, width> sums{};
  if (tile.inside()) {
    tile.template for_each_row<4>([&](std::int64_t at, std::int64_t) { return load_vector<width>(x + at); },
                                  [&](std::int64_t, std::int64_t, const Vector<T, width>& loaded) {
                                    const auto values = to_floats(loaded);
                                    for (int i = 0; i < width; ++i) sums.values[i] += values.values[i];
                                  });
  }
  tile.store_sums(sums, partial + blockIdx.y * columns);
}

}  // namespace

void CudaOps::add_bias(const AddBiasArgs& args) {
  with_activation_type("add_bias", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    T* x = elements_of<T>("add_bias", args.x, size.elements());
    const T* bias = elements_of<T>("add_bias", args.bias, size.columns);
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(size.columns, x, bias);
    const auto kernel = vectors ? add_bias_kernel<T, Vector<T>::size> : add_bias_kernel<T, 1>;
    const LaunchShape shape =
        column_tile_shape(size.rows, size.columns, vectors ? Vector<T>::size : 1, device_.multiprocessors(), 1);
    launch(stream_, shape, kernel, bias, x, size.rows, size.columns);
  });
}

void CudaOps::column_sum(const ColumnSumArgs& args) {
  with_activation_type("column_sum", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    const T* x = elements_of<T>("column_sum", args.x, size.elements());
    float* y = elements_of<float>("column_sum", args.y, size.columns);
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(size.columns, x);
    const auto kernel = vectors ? column_sum_kernel<T, Vector<T>::size> : column_sum_kernel<T, 1>;
    const LaunchShape shape =
        column_tile_shape(size.rows, size.columns, vectors ? Vector<T>::size : 1, device_.multiprocessors(), 8);
    float* partial = float_scratch(shape.grid.y * size.columns);
    launch(stream_, shape, kernel, x, partial, size.rows, size.columns);
    add_slices(stream_, partial, shape.grid.y, size.columns, y);
  });
}

}  // namespace megatron
