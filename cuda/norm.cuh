// Shared by both directions of layer normalisation: teams of threads, up to a block, that keep a row in registers.
#pragma once

#include <utility>

#include "backend/ops/arguments.h"
#include "cuda/kernel.cuh"

namespace megatron {

struct Sums {
  float first, second;
};

/// The sums over the team, in all its threads: a part of a warp, a warp, or the whole block. Whole warps come.
template <int team>
__device__ __forceinline__ Sums team_sums(Sums sums) {
  constexpr int of_warp = team < static_cast<int>(kWarpThreads) ? team : static_cast<int>(kWarpThreads);
  for (int lanes = of_warp / 2; lanes > 0; lanes /= 2) {
    sums.first += __shfl_xor_sync(kFullWarp, sums.first, lanes);
    sums.second += __shfl_xor_sync(kFullWarp, sums.second, lanes);
  }
  if constexpr (team > static_cast<int>(kWarpThreads)) {
    constexpr unsigned warps = team / kWarpThreads;
    __shared__ Sums of_warps[warps];
    const unsigned warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    __syncthreads();  // no thread reads the last ones any more
    if (lane == 0) of_warps[warp] = sums;
    __syncthreads();
    const Sums other = lane < warps ? of_warps[lane] : Sums{0, 0};
    sums = {warp_sum(other.first), warp_sum(other.second)};
  }
  return sums;
}

/// Threads of a block: several teams of at most a warp, or one larger team.
constexpr int norm_block(int team) {
  return team <= static_cast<int>(kWarpThreads) ? 256 : team;
}

/// Calls body.operator()<team, vectors>() with the smallest team that keeps a row of aligned vectors in registers, and
/// as few vectors a thread as hold it; false if there is none: 16-bit elements up to 12288 columns, f32 up to 8192.
template <class T, class Body>
bool with_norm_team(std::int64_t columns, const Body& body) {
  // Vectors are counted in pieces of 8 elements. A thread of the backward kernel has registers for three pieces, which
  // f32 fills with two.
  constexpr int vectors_a_piece = 8 / Vector<T>::size;
  const auto try_team = [&]<int team, int... pieces>(std::integer_sequence<int, team, pieces...>) {
    return (... ||
            (columns <= team * pieces * 8 && (body.template operator()<team, pieces * vectors_a_piece>(), true)));
  };
  const auto one_of = [&](auto... teams) { return (... || try_team(teams)); };
  if constexpr (kHalf<T>) {
    return one_of(std::integer_sequence<int, 8, 1>(), std::integer_sequence<int, 16, 1>(),
                  std::integer_sequence<int, 32, 1, 2, 3>(), std::integer_sequence<int, 128, 1, 2, 3>(),
                  std::integer_sequence<int, 256, 2, 3>(), std::integer_sequence<int, 512, 2, 3>());
  } else {
    return one_of(std::integer_sequence<int, 8, 1>(), std::integer_sequence<int, 16, 1>(),
                  std::integer_sequence<int, 32, 1, 2>(), std::integer_sequence<int, 128, 1, 2>(),
                  std::integer_sequence<int, 256, 2>(), std::integer_sequence<int, 512, 2>());
  }
}

/// Whether rows of `columns` elements consist of aligned vectors, wherever they lie.
template <class T, class... Rows>
bool vectorizable_rows(std::int64_t columns, const Rows&... rows) {
  return ((vectorizable<T>(columns, rows.data) && rows.places.multiples_of(Vector<T>::size)) && ...);
}

}  // namespace megatron
