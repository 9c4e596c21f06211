// The router of a mixture of experts: a warp has a row, its lanes share the experts.
#include <cmath>

#include "backend/ops/expert_routing_shape.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"
#include "cuda/sums.cuh"

namespace megatron {

namespace {

/// The expert that the row prefers to all others after `previous`, in every lane.
__device__ __forceinline__ RankedExpert best_after(const RouteForwardShape& at, const float* probabilities,
                                                   RankedExpert previous) {
  RankedExpert best = RankedExpert::last();
  for (std::int64_t expert = threadIdx.x % kWarpThreads; expert < at.experts; expert += kWarpThreads) {
    const RankedExpert candidate = at.ranked(probabilities[expert], expert);
    if (previous.before(candidate) && candidate.before(best)) best = candidate;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const RankedExpert other{__shfl_xor_sync(kFullWarp, best.score, lanes),
                             __shfl_xor_sync(kFullWarp, best.expert, lanes)};
    if (other.before(best)) best = other;
  }
  return best;
}

/// Probabilities were written by the lanes of this warp.
__device__ __forceinline__ void choose(const RouteForwardShape& at, std::int64_t row) {
  const float* probabilities = at.probabilities + row * at.experts;
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  float *gates = at.gates + row * at.top_k, sum = 0;
  RankedExpert last = RankedExpert::first();
  for (std::int64_t j = 0; j < at.top_k; ++j) {
    last = best_after(at, probabilities, last);
    const float gate = probabilities[last.expert];
    sum += gate;
    if (j % kWarpThreads != lane) continue;
    at.chosen[row * at.top_k + j] = last.expert;
    gates[j] = gate;
  }
  if (at.renormalize) {
    const float divisor = sum < kLeastGateSum ? kLeastGateSum : sum;
    for (std::int64_t j = lane; j < at.top_k; j += kWarpThreads) gates[j] /= divisor;
  }
  if (at.gaps == nullptr) return;
  const float left = at.top_k == at.experts ? -INFINITY : best_after(at, probabilities, last).score;
  if (lane == 0) at.gaps[row] = at.top_k == at.experts ? INFINITY : last.score - left;
}

__global__ void __launch_bounds__(kBlockThreads) forward_kernel(RouteForwardShape at) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= at.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  const float* logits = at.logits + row * at.experts;
  float *probabilities = at.probabilities + row * at.experts, maximum = -INFINITY, sum = 0;
  for (std::int64_t i = lane; i < at.experts; i += kWarpThreads) maximum = logits[i] > maximum ? logits[i] : maximum;
  maximum = warp_maximum(maximum);
  for (std::int64_t i = lane; i < at.experts; i += kWarpThreads) {
    probabilities[i] = expf(logits[i] - maximum);
    sum += probabilities[i];
  }
  sum = warp_sum(sum);
  const float reciprocal = 1.0f / sum;
  for (std::int64_t i = lane; i < at.experts; i += kWarpThreads) probabilities[i] *= reciprocal;
  if (lane == 0) at.log_sums[row] = maximum + logf(sum);
  __syncwarp();
  choose(at, row);
}

/// partial[gridDim.x]: sums of counts · probabilities.
__global__ void __launch_bounds__(kBlockThreads) balance_kernel(RouteLossesShape at, double* partial) {
  __shared__ double partial_sum[kWarpThreads];
  double sum = 0;
  for (std::int64_t i = first_element(); i < at.rows * at.experts; i += element_stride()) {
    const std::int64_t row = i / at.experts;
    const std::int32_t count = at.counts[row % at.samples * at.experts + (i - row * at.experts)];
    sum += static_cast<double>(at.probabilities[i]) * count;
  }
  sum = block_sum(sum, partial_sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum * at.balance_factor;
}

/// partial[gridDim.x]: sums of log_sums².
__global__ void __launch_bounds__(kBlockThreads) z_kernel(RouteLossesShape at, double* partial) {
  __shared__ double partial_sum[kWarpThreads];
  double sum = 0;
  for (std::int64_t row = first_element(); row < at.rows; row += element_stride()) {
    const auto log_sum = static_cast<double>(at.log_sums[row]);
    sum += log_sum * log_sum;
  }
  sum = block_sum(sum, partial_sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum * at.z_factor;
}

/// Gates that add up to 1 depend on the chosen logits alone: their gradient is that of a softmax over these.
__global__ void __launch_bounds__(kBlockThreads) backward_kernel(RouteBackwardShape at) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= at.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  const float* probabilities = at.probabilities + row * at.experts;
  const std::int32_t* chosen = at.chosen + row * at.top_k;
  const std::int32_t* counts = at.counts == nullptr ? nullptr : at.counts + row % at.samples * at.experts;
  const float* dgates = at.dgates + row * at.top_k;

  float gate_sum = 0, product = 0, mean = 0;
  for (std::int64_t j = lane; j < at.top_k; j += kWarpThreads) {
    gate_sum += at.is_expert(chosen[j]) ? probabilities[chosen[j]] : 0.0f;
  }
  gate_sum = warp_sum(gate_sum);
  const float divisor = !at.renormalize ? 1.0f : gate_sum < kLeastGateSum ? kLeastGateSum : gate_sum;
  // From the gates as forward made them: the one gate of a row, if renormalized, has a gradient of exactly 0.
  for (std::int64_t j = lane; j < at.top_k; j += kWarpThreads) {
    if (at.is_expert(chosen[j])) product += probabilities[chosen[j]] / divisor * dgates[j];
  }
  product = warp_sum(product);
  if (counts != nullptr) {
    for (std::int64_t i = lane; i < at.experts; i += kWarpThreads) {
      mean += probabilities[i] * static_cast<float>(counts[i]);
    }
    mean = warp_sum(mean);
  }
  float common = at.log_sums == nullptr ? 0.0f : at.z_scale * at.log_sums[row];
  if (!at.renormalize) common -= product;
  const float subtracted = at.renormalize ? product : 0.0f;
  for (std::int64_t i = lane; i < at.experts; i += kWarpThreads) {
    const float balance = counts == nullptr ? 0.0f : at.balance_scale * (static_cast<float>(counts[i]) - mean);
    float gradient = balance + common;
    for (std::int64_t j = 0; j < at.top_k; ++j) {
      if (chosen[j] == i) gradient += (dgates[j] - subtracted) / divisor;
    }
    at.dlogits[row * at.experts + i] = probabilities[i] * gradient;
  }
}

}  // namespace

void CudaOps::route_forward(const RouteForwardArgs& args) {
  const RouteForwardShape at(args);
  if (at.rows > 0) launch(stream_, warp_rows_shape(at.rows), forward_kernel, at);
}

void CudaOps::route_losses(const RouteLossesArgs& args) {
  const RouteLossesShape at(args);
  if (at.rows == 0) return;
  const auto add = [&](void (*kernel)(RouteLossesShape, double*), std::int64_t n, double* total) {
    const LaunchShape shape = elementwise_shape(n);
    auto* partial = reinterpret_cast<double*>(scratch(shape.grid.x * sizeof(double)));
    launch(stream_, shape, kernel, at, partial);
    add_partial_sums(stream_, partial, shape.grid.x, total);
  };
  if (at.balance != nullptr) add(balance_kernel, at.rows * at.experts, at.balance);
  if (at.z != nullptr) add(z_kernel, at.rows, at.z);
}

void CudaOps::route_backward(const RouteBackwardArgs& args) {
  const RouteBackwardShape at(args);
  if (at.rows > 0) launch(stream_, warp_rows_shape(at.rows), backward_kernel, at);
}

}  // namespace megatron
