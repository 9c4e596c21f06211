// Tallies of the choices of experts: a few integers and a minimum per call, so one block does it.
#include <cmath>

#include "backend/ops/expert_routing_shape.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"

namespace megatron {

namespace {

__global__ void __launch_bounds__(kBlockThreads) tally_kernel(TallyRoutesShape at) {
  __shared__ float partial_least[kWarpThreads];
  __shared__ double partial_sum[kWarpThreads];
  double dropped = 0;
  for (std::int64_t expert = threadIdx.x; expert < at.experts; expert += kBlockThreads) {
    std::int64_t choices = 0;
    for (std::int64_t sample = 0; sample < at.samples; ++sample) {
      const std::int32_t count = at.counts[sample * at.experts + expert];
      choices += count;
      dropped += static_cast<double>(at.dropped(count));
    }
    at.choices[expert] += static_cast<double>(choices);
  }
  dropped = block_sum(dropped, partial_sum);
  float least = INFINITY;
  for (std::int64_t i = threadIdx.x; i < at.rows; i += kBlockThreads) least = at.gaps[i] < least ? at.gaps[i] : least;
  least = -block_maximum(-least, partial_least);
  if (threadIdx.x != 0) return;
  at.choices[at.experts] += dropped;
  if (least < *at.least_gap) *at.least_gap = least;
}

__global__ void __launch_bounds__(kBlockThreads) shift_kernel(ShiftChoiceBiasShape at) {
  double sum = 0;  // the same in every thread, of a few numbers
  for (std::int64_t expert = 0; expert < at.experts; ++expert) sum += at.choices[expert];
  for (std::int64_t expert = threadIdx.x; expert < at.experts; expert += kBlockThreads) {
    at.bias[expert] += at.shift(expert, sum);
  }
}

}  // namespace

void CudaOps::tally_routes(const TallyRoutesArgs& args) {
  launch(stream_, {.grid = dim3(1), .block = dim3(kBlockThreads)}, tally_kernel, TallyRoutesShape(args));
}

void CudaOps::shift_choice_bias(const ShiftChoiceBiasArgs& args) {
  launch(stream_, {.grid = dim3(1), .block = dim3(kBlockThreads)}, shift_kernel, ShiftChoiceBiasShape(args));
}

}  // namespace megatron
