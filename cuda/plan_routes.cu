// Assigns chosen rows to slots with integer operations only. One block per sample runs a stable counting sort over the
// choices: each warp counts experts in its range of choices; a prefix sum over the warps then gives the range's first
// place in each expert.
#include <algorithm>

#include "backend/ops/expert_routing_shape.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_ops.h"
#include "cuda/philox.cuh"

namespace megatron {

namespace {

/// order[sample, choice, i]: the row with the i-th largest noise for its chosen expert. Sorting all rows together also
/// sorts the rows of each expert. Each thread finds its row's rank by counting the rows with larger noise.
__global__ void __launch_bounds__(kBlockThreads) random_order_kernel(PlanRoutesShape at, std::int32_t* order) {
  __shared__ std::uint32_t noise[kBlockThreads];
  const auto tiles = static_cast<unsigned>((at.sequence + kBlockThreads - 1) / kBlockThreads);
  const std::int64_t list = blockIdx.x / tiles, sample = list / at.top_k, choice = list % at.top_k;
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x % tiles) * kBlockThreads + threadIdx.x;
  const auto noise_of = [&](std::int64_t position) {
    return philox_words({static_cast<std::uint32_t>(at.chosen[at.entry(position, sample, choice)]),
                         static_cast<std::uint32_t>(at.positions[position]), 0,
                         static_cast<std::uint32_t>(at.first_sample + sample)},
                        at.key)
        .x;
  };
  const std::uint32_t own_noise = own < at.sequence ? noise_of(own) : 0;
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < at.sequence; first += kBlockThreads) {
    if (first + threadIdx.x < at.sequence) noise[threadIdx.x] = noise_of(first + threadIdx.x);
    __syncthreads();
    const auto count = static_cast<int>(at.sequence - first < kBlockThreads ? at.sequence - first : kBlockThreads);
    for (int i = 0; i < count; ++i) {
      before += noise[i] > own_noise || (noise[i] == own_noise && first + i < own) ? 1 : 0;
    }
    __syncthreads();
  }
  if (own < at.sequence) order[list * at.sequence + before] = static_cast<std::int32_t>(own);
}

/// Calls body(entry, expert, same, inside) for the choices [first, last) of a sample, 32 of them at a time; `same` are
/// the lanes whose expert is this lane's. Choices that are no expert's have the number of experts.
template <class Body>
__device__ __forceinline__ void for_each_choice(const PlanRoutesShape& at, const std::int32_t* order, unsigned first,
                                                unsigned last, const Body& body) {
  const auto sequence = static_cast<unsigned>(at.sequence);
  for (unsigned i = first + threadIdx.x % kWarpThreads; i - threadIdx.x % kWarpThreads < last; i += kWarpThreads) {
    const bool inside = i < last;
    std::int64_t entry = 0;
    auto expert = static_cast<std::int32_t>(at.layout.experts);
    if (inside) {
      const unsigned choice = i / sequence, in_order = i - choice * sequence;
      const std::int64_t position = order == nullptr ? in_order : order[blockIdx.x * at.sequence * at.top_k + i];
      entry = at.entry(position, blockIdx.x, choice);
      if (at.is_expert(at.chosen[entry])) expert = at.chosen[entry];
    }
    body(entry, expert, __match_any_sync(kFullWarp, expert), inside);
  }
}

__global__ void __launch_bounds__(1024) plan_kernel(PlanRoutesShape at, const std::int32_t* order) {
  // next[warp, expert]: how many choices the warp's range has, then the place of the next one.
  auto* next = dynamic_shared<std::int32_t>();
  const auto experts = static_cast<std::int32_t>(at.layout.experts);
  const int warps = static_cast<int>(blockDim.x / kWarpThreads), warp = static_cast<int>(threadIdx.x / kWarpThreads);
  const unsigned lower_lanes = (1u << threadIdx.x % kWarpThreads) - 1;
  std::int32_t* own = next + warp * experts;
  for (int i = static_cast<int>(threadIdx.x); i < warps * experts; i += static_cast<int>(blockDim.x)) next[i] = 0;
  __syncthreads();

  const auto choices = static_cast<unsigned>(at.sequence * at.top_k);
  const unsigned of_warp = (choices / kWarpThreads / warps + 1) * kWarpThreads;
  const unsigned first = warp * of_warp < choices ? warp * of_warp : choices;
  const unsigned last = first + of_warp < choices ? first + of_warp : choices;
  for_each_choice(at, order, first, last, [&](std::int64_t, std::int32_t expert, unsigned same, bool) {
    if (expert < experts && (same & lower_lanes) == 0) own[expert] += __popc(same);
    __syncwarp();
  });
  __syncthreads();
  for (int expert = static_cast<int>(threadIdx.x); expert < experts; expert += static_cast<int>(blockDim.x)) {
    std::int32_t sum = 0;
    for (int i = 0; i < warps; ++i) {
      const std::int32_t count = next[i * experts + expert];
      next[i * experts + expert] = sum;
      sum += count;
    }
    at.counts[blockIdx.x * at.layout.experts + expert] = sum;
  }
  if (at.only_counts()) return;
  __syncthreads();
  for_each_choice(at, order, first, last, [&](std::int64_t entry, std::int32_t expert, unsigned same, bool inside) {
    const std::int32_t place = expert < experts ? own[expert] + __popc(same & lower_lanes) : 0;
    __syncwarp();
    if (expert < experts && (same & lower_lanes) == 0) own[expert] += __popc(same);
    __syncwarp();
    if (!inside) return;
    const std::int32_t slot = expert < experts ? at.slot(expert, place, blockIdx.x) : -1;
    at.set_slot(entry, slot);
  });
}

/// As many warps as there is work for, and as have a row of the table in the shared memory that every block has.
LaunchShape plan_shape(const PlanRoutesShape& at) {
  constexpr std::int64_t most_bytes = 40 << 10;
  const std::int64_t row_bytes = at.layout.experts * static_cast<std::int64_t>(sizeof(std::int32_t));
  verify(row_bytes <= most_bytes, ErrorKind::configuration,
         "plan_routes: {} experts, of which this backend has {} at most", at.layout.experts,
         most_bytes / static_cast<std::int64_t>(sizeof(std::int32_t)));
  const std::int64_t pieces = at.sequence * at.top_k / kWarpThreads + 1;
  const std::int64_t warps = std::min({std::int64_t{32}, pieces, most_bytes / row_bytes});
  return {.grid = dim3(static_cast<unsigned>(at.samples)),
          .block = dim3(static_cast<unsigned>(warps * kWarpThreads)),
          .shared_bytes = static_cast<std::size_t>(warps * row_bytes)};
}

}  // namespace

void CudaOps::plan_routes(const PlanRoutesArgs& args) {
  const PlanRoutesShape at(args);
  if (at.samples == 0) return;
  if (at.entries != nullptr) CUDA_CHECK(cudaMemsetAsync(at.entries, 0xFF, args.entries.bytes(), stream_));
  const std::int64_t lists = at.samples * at.top_k;
  std::int32_t* order = nullptr;
  if (at.positions != nullptr && lists * at.sequence > 0) {
    order = reinterpret_cast<std::int32_t*>(scratch(args.chosen.bytes()));
    const std::int64_t tiles = (at.sequence + kBlockThreads - 1) / kBlockThreads;
    launch(stream_, {.grid = dim3(static_cast<unsigned>(lists * tiles)), .block = dim3(kBlockThreads)},
           random_order_kernel, at, order);
  }
  launch(stream_, plan_shape(at), plan_kernel, at, order);
}

}  // namespace megatron
