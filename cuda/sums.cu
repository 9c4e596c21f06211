#include "cuda/sums.cuh"

#include "cuda/kernel.cuh"

namespace megatron {

namespace {

constexpr int kLanes = 32, kRows = 16;

__global__ void __launch_bounds__(kLanes* kRows)
    add_slices_kernel(const float* partial, std::int64_t slices, std::int64_t columns, float* y0, float* y1) {
  __shared__ float sums[kRows][kLanes];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    const float* from = partial + blockIdx.y * columns + column;
    const std::int64_t stride = gridDim.y * columns;
#pragma unroll 4
    for (std::int64_t slice = threadIdx.y; slice < slices; slice += kRows) sum += from[slice * stride];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  for (int row = 1; row < kRows; ++row) sum += sums[row][threadIdx.x];
  float* y = blockIdx.y == 0 ? y0 : y1;
  y[column] += sum;
}

__global__ void __launch_bounds__(1024)
    add_partial_sums_kernel(const double* partial, std::int64_t count, double* total) {
  __shared__ double sums[kWarpThreads];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum, sums);
  if (threadIdx.x == 0) *total += sum;
}

}  // namespace

void add_slices(cudaStream_t stream, const float* partial, std::int64_t slices, std::int64_t columns, float* y0,
                float* y1) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>((columns + kLanes - 1) / kLanes), y1 == nullptr ? 1u : 2u),
                          .block = dim3(kLanes, kRows)};
  launch(stream, shape, add_slices_kernel, partial, slices, columns, y0, y1);
}

void add_partial_sums(cudaStream_t stream, const double* partial, std::int64_t count, double* total) {
  launch(stream, {.grid = dim3(1), .block = dim3(1024)}, add_partial_sums_kernel, partial, count, total);
}

}  // namespace megatron
