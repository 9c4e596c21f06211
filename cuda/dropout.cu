#include "cuda/dropout.cuh"

#include "backend/ops/arguments.h"
#include "backend/ops/dropout_rule.h"
#include "cuda/column_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/sums.cuh"

namespace megatron {

namespace {

/// The mask of the rows of an [s, b, h] tensor, as kernels take it.
struct RowMask {
  const std::int32_t* positions;  ///< null: nothing is dropped
  std::uint64_t key;
  std::uint32_t first_sample, samples;
  std::int32_t threshold;
  float scale;

  template <int width>
  __device__ __forceinline__ Vector<float, width> scales(std::int64_t row, std::int64_t column) const {
    const auto narrow_row = static_cast<std::uint32_t>(row);  // 64-bit divisions are long
    return dropout_scales<width>(key, static_cast<std::uint32_t>(__ldg(positions + narrow_row / samples)), 0,
                                 first_sample + narrow_row % samples, column, threshold, scale);
  }
};

RowMask row_mask(const char* verb, const ConstTensor& x, const Dropout& dropout) {
  internal_check(x.rank() == 3, "dropout of a tensor that is not [s, b, h]", x.shape());
  internal_check(x.dim(0) * x.dim(1) < std::int64_t{1} << 32, "dropout of 2^32 rows", x.shape());
  const bool masked = dropout.probability != 0;
  const DropoutRule rule(dropout.probability);
  return {.positions = masked ? elements_of<std::int32_t>(verb, dropout.positions, x.dim(0)) : nullptr,
          .key = dropout.key,
          .first_sample = static_cast<std::uint32_t>(dropout.first_sample),
          .samples = static_cast<std::uint32_t>(x.dim(1)),
          .threshold = rule.threshold,
          .scale = rule.scale};
}

template <class T, int width>
struct ForwardInputs {
  Vector<T, width> x, residual;
};

template <class T, int width>
__global__ void __launch_bounds__(kTileThreads, 4)
    forward_kernel(const T* x, const T* bias, const T* residual, T* y, RowMask mask, std::int64_t rows,
                   std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  if (!tile.inside()) return;
  Vector<float, width> bias_values{};
  if (bias != nullptr) bias_values = load_floats<width>(bias + tile.column);
  using Inputs = ForwardInputs<T, width>;
  tile.template for_each_row<2>(
      [&](std::int64_t at, std::int64_t) {
        Inputs loaded;
        loaded.x = load_vector<width>(x + at);
        if (residual != nullptr) loaded.residual = load_vector<width>(residual + at);
        return loaded;
      },
      [&](std::int64_t at, std::int64_t row, const Inputs& loaded) {
        auto values = to_floats(loaded.x);
        for (int i = 0; i < width; ++i) values.values[i] += bias_values.values[i];
        if (mask.positions != nullptr) {
          const auto scales = mask.scales<width>(row, tile.column);
          for (int i = 0; i < width; ++i) values.values[i] *= scales.values[i];
        }
        if (residual != nullptr) {
          const auto through = to_floats(loaded.residual);
          for (int i = 0; i < width; ++i) values.values[i] += through.values[i];
        }
        store_floats(y + at, values);
      });
}

/// partial: [gridDim.y, columns] sums of dx as it is stored, or null.
template <class T, int width>
__global__ void __launch_bounds__(kTileThreads, 4)
    backward_kernel(const T* dy, T* dx, RowMask mask, float* partial, std::int64_t rows, std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  Vector<float, width> sums{};
  if (tile.inside()) {
    tile.template for_each_row<4>([&](std::int64_t at, std::int64_t) { return load_vector<width>(dy + at); },
                                  [&](std::int64_t at, std::int64_t row, const Vector<T, width>& loaded) {
                                    auto gradient = to_floats(loaded);
                                    if (mask.positions != nullptr) {
                                      const auto scales = mask.scales<width>(row, tile.column);
                                      for (int i = 0; i < width; ++i) gradient.values[i] *= scales.values[i];
                                    }
                                    const auto stored = narrow_floats<T>(gradient);
                                    store_global(dx + at, stored);
                                    const auto rounded = to_floats(stored);
                                    for (int i = 0; i < width; ++i) sums.values[i] += rounded.values[i];
                                  });
  }
  if (partial != nullptr) tile.store_sums(sums, partial + blockIdx.y * columns);
}

}  // namespace

void CudaOps::dropout_add_forward(const DropoutAddForwardArgs& args) {
  with_activation_type("dropout_add_forward", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    const T* x = elements_of<T>("dropout_add_forward", args.x, size.elements());
    const T* bias = optional_elements_of<T>("dropout_add_forward", args.bias, size.columns);
    const T* residual = optional_elements_of<T>("dropout_add_forward", args.residual, size.elements());
    T* y = elements_of<T>("dropout_add_forward", args.y, size.elements());
    const RowMask mask = row_mask("dropout_add_forward", args.x, args.dropout);
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(size.columns, x, bias, residual, y);
    const auto kernel = vectors ? forward_kernel<T, Vector<T>::size> : forward_kernel<T, 1>;
    const LaunchShape shape =
        column_tile_shape(size.rows, size.columns, vectors ? Vector<T>::size : 1, device_.multiprocessors(), 1);
    launch(stream_, shape, kernel, x, bias, residual, y, mask, size.rows, size.columns);
  });
}

void CudaOps::dropout_add_backward(const DropoutAddBackwardArgs& args) {
  with_activation_type("dropout_add_backward", args.dy.dtype(), [&]<class T>(T) {
    const RowsOf size(args.dy);
    const T* dy = elements_of<T>("dropout_add_backward", args.dy, size.elements());
    T* dx = elements_of<T>("dropout_add_backward", args.dx, size.elements());
    float* dbias = optional_elements_of<float>("dropout_add_backward", args.dbias, size.columns);
    const RowMask mask = row_mask("dropout_add_backward", args.dy, args.dropout);
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(size.columns, dy, dx);
    const auto kernel = vectors ? backward_kernel<T, Vector<T>::size> : backward_kernel<T, 1>;
    const LaunchShape shape = column_tile_shape(size.rows, size.columns, vectors ? Vector<T>::size : 1,
                                                device_.multiprocessors(), dbias == nullptr ? 1 : 8);
    float* partial = dbias == nullptr ? nullptr : float_scratch(shape.grid.y * size.columns);
    launch(stream_, shape, kernel, dy, dx, mask, partial, size.rows, size.columns);
    if (dbias != nullptr) add_slices(stream_, partial, shape.grid.y, size.columns, dbias);
  });
}

}  // namespace megatron
