#include "backend/ops/append_rows_shape.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"

namespace megatron {

namespace {

/// Element strides of [rows, b, heads, d].
struct RowStrides {
  std::int64_t row, sample, head;
};

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    append_rows_kernel(const T* x, T* y, AppendRowsShape shape, RowStrides from, RowStrides to) {
  const std::int64_t n = shape.rows * shape.samples * shape.heads * shape.size;
  for (std::int64_t i = first_element(); i < n; i += element_stride()) {
    const std::int64_t element = i % shape.size, head = i / shape.size % shape.heads;
    const std::int64_t sample = i / (shape.size * shape.heads) % shape.samples;
    const std::int64_t row = i / (shape.size * shape.heads * shape.samples);
    const std::int64_t at = row + (shape.offsets != nullptr ? shape.offsets[sample] : 0);
    if (at >= shape.capacity) continue;
    y[at * to.row + sample * to.sample + head * to.head + element] =
        x[row * from.row + sample * from.sample + head * from.head + element];
  }
}

RowStrides strides_of(const ConstTensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

}  // namespace

void CudaOps::append_rows(const AppendRowsArgs& args) {
  with_activation_type("append_rows", args.x.dtype(), [&]<class T>(T) {
    const AppendRowsShape shape(args);
    const std::int64_t n = shape.rows * shape.samples * shape.heads * shape.size;
    if (n == 0) return;
    launch(stream_, elementwise_shape(n), append_rows_kernel<T>, args.x.as<T>(), args.y.as<T>(), shape,
           strides_of(args.x), strides_of(args.y));
  });
}

}  // namespace megatron
