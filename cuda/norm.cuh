// What both directions of layer normalisation share: teams of threads, a warp or a block, that keep a row in registers.
#pragma once

#include <utility>

#include "cuda/kernel.cuh"

namespace megatron {

struct Sums {
  float first, second;
};

/// The sums over the team, in all its threads. A team of more than a warp is the whole block.
template <int team>
__device__ __forceinline__ Sums team_sums(Sums sums) {
  sums = {warp_sum(sums.first), warp_sum(sums.second)};
  if constexpr (team > static_cast<int>(kWarpThreads)) {
    constexpr unsigned warps = team / kWarpThreads;
    __shared__ Sums of_warps[warps];
    const unsigned warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    __syncthreads();  // nobody reads the last ones any more
    if (lane == 0) of_warps[warp] = sums;
    __syncthreads();
    const Sums other = lane < warps ? of_warps[lane] : Sums{0, 0};
    sums = {warp_sum(other.first), warp_sum(other.second)};
  }
  return sums;
}

/// Threads of a block: several teams of a warp, or one larger team.
constexpr int norm_block(int team) {
  return team == static_cast<int>(kWarpThreads) ? 256 : team;
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
    return one_of(std::integer_sequence<int, 32, 1, 2, 3>(), std::integer_sequence<int, 128, 1, 2, 3>(),
                  std::integer_sequence<int, 256, 2, 3>(), std::integer_sequence<int, 512, 2, 3>());
  } else {
    return one_of(std::integer_sequence<int, 32, 1, 2>(), std::integer_sequence<int, 128, 1, 2>(),
                  std::integer_sequence<int, 256, 2>(), std::integer_sequence<int, 512, 2>());
  }
}

/// Blocks of 256 threads with a warp a row.
inline LaunchShape warp_rows_shape(std::int64_t rows) {
  return {.grid = dim3(static_cast<unsigned>((rows + 7) / 8)), .block = dim3(256)};
}

}  // namespace megatron
