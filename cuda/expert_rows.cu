// Rows on their way to the slots of experts and back: a warp has a row of the result.
#include "backend/ops/expert_routing_shape.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"

namespace megatron {

namespace {

/// Calls body(column) for the columns where each of the lane's vectors begins.
template <int width, class Body>
__device__ __forceinline__ void for_each_column(std::int64_t columns, const Body& body) {
  constexpr std::int64_t step = kWarpThreads * width;
#pragma unroll 4
  for (std::int64_t column = threadIdx.x % kWarpThreads * width; column < columns; column += step) body(column);
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads) dispatch_kernel(DispatchRowsShape<T> at) {
  const std::int64_t slot = first_element() / kWarpThreads;
  if (slot >= at.slots) return;
  const std::int32_t entry = at.entries[slot];
  const std::int64_t row = at.row_of(entry);
  T* y = at.y + slot * at.columns;
  if (row < 0) {
    for_each_column<width>(at.columns, [&](std::int64_t column) { store_global(y + column, Vector<T, width>{}); });
    return;
  }
  const T* x = at.x + row * at.columns;
  if (at.gates == nullptr) {
    for_each_column<width>(at.columns,
                           [&](std::int64_t column) { store_global(y + column, load_vector<width>(x + column)); });
    return;
  }
  const float gate = at.gates[entry];
  for_each_column<width>(at.columns, [&](std::int64_t column) {
    auto values = load_floats<width>(x + column);
    for (int i = 0; i < width; ++i) values.values[i] *= gate;
    store_floats(y + column, values);
  });
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads) combine_kernel(CombineRowsShape<T> at) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= at.rows || !at.changes(row)) return;
  const std::int64_t first = row * at.top_k, last = first + at.top_k;
  T* y = at.y + row * at.columns;
  for (std::int64_t column = threadIdx.x % kWarpThreads * width; column < at.columns; column += kWarpThreads * width) {
    Vector<float, width> sum{};
    if (at.accumulate) sum = load_floats<width>(y + column);
#pragma unroll 4
    for (std::int64_t choice = first; choice < last; ++choice) {
      const T* x = at.row_of(choice);
      if (x == nullptr) continue;
      const float gate = at.gates == nullptr ? 1.0f : at.gates[choice];
      const auto values = load_floats<width>(x + column);
      for (int i = 0; i < width; ++i) sum.values[i] += gate * values.values[i];
    }
    store_floats(y + column, sum);
  }
}

/// A warp has a choice.
template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads) gates_backward_kernel(CombineGatesBackwardShape<T> at) {
  const std::int64_t choice = first_element() / kWarpThreads;
  if (choice >= at.rows * at.top_k) return;
  const T *x = at.row_of(choice), *dy = at.dy + choice / at.top_k * at.columns;
  float sum = 0;
  if (x != nullptr) {
    for_each_column<width>(at.columns, [&](std::int64_t column) {
      const auto values = load_floats<width>(x + column), gradients = load_floats<width>(dy + column);
      for (int i = 0; i < width; ++i) sum += values.values[i] * gradients.values[i];
    });
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpThreads == 0) at.dgates[choice] = sum;
}

}  // namespace

void CudaOps::dispatch_rows(const DispatchRowsArgs& args) {
  with_activation_type("dispatch_rows", args.x.dtype(), [&]<class T>(T) {
    const DispatchRowsShape<T> at(args);
    if (at.slots * at.columns == 0) return;
    const bool vectors = vectorizable<T>(at.columns, at.x, at.y);
    launch(stream_, warp_rows_shape(at.slots), vectors ? dispatch_kernel<T, Vector<T>::size> : dispatch_kernel<T, 1>,
           at);
  });
}

void CudaOps::combine_rows(const CombineRowsArgs& args) {
  with_activation_type("combine_rows", args.x.dtype(), [&]<class T>(T) {
    const CombineRowsShape<T> at(args);
    if (at.rows * at.columns == 0) return;
    const bool vectors = vectorizable<T>(at.columns, at.x, at.y);
    launch(stream_, warp_rows_shape(at.rows), vectors ? combine_kernel<T, Vector<T>::size> : combine_kernel<T, 1>, at);
  });
}

void CudaOps::combine_gates_backward(const CombineGatesBackwardArgs& args) {
  with_activation_type("combine_gates_backward", args.x.dtype(), [&]<class T>(T) {
    const CombineGatesBackwardShape<T> at(args);
    if (at.rows * at.top_k == 0) return;
    const bool vectors = vectorizable<T>(at.columns, at.x, at.dy);
    launch(stream_, warp_rows_shape(at.rows * at.top_k),
           vectors ? gates_backward_kernel<T, Vector<T>::size> : gates_backward_kernel<T, 1>, at);
  });
}

}  // namespace megatron
