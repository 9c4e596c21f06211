// Asynchronous copies of the emulation: each of its two modes finds what the other one hides.
#include <vector>

#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "support/catch.h"

using namespace megatron;

namespace {

constexpr int kThreads = 64, kTiles = 4;

/// Every thread loads 16 bytes of each tile and adds up its neighbour's, from two buffers by turns. `early`: the next
/// tile is loaded into the buffer of the last one before the barrier after which all have read that.
/// `no_wait`: tiles are read without waiting for them.
template <bool early, bool no_wait>
__global__ void sum_neighbours(const float* x, float* sums) {
  __align__(16) __shared__ float tiles[2][kThreads][4];
  const int thread = static_cast<int>(threadIdx.x), neighbour = (thread + kThreads / 2) % kThreads;
  const auto load = [&](int tile) {
    if (tile < kTiles) {
      ptx::copy_16_bytes_later(tiles[tile % 2][thread], x + (tile * kThreads + thread) * 4, true);
    }
    ptx::commit_copies();
  };
  float sum = 0;
  load(0);
  if (early) load(1);
  for (int tile = 0; tile < kTiles; ++tile) {
    if (!no_wait && !early) ptx::wait_for_copies<0>();
    if (early) ptx::wait_for_copies<1>();
    __syncthreads();  // this tile is there, and all have read the last one
    if (!early) load(tile + 1);
    for (int i = 0; i < 4; ++i) sum += tiles[tile % 2][neighbour][i];
    if (early) load(tile + 2);  // over what others may still be reading
  }
  sums[thread] = sum;
}

template <bool early, bool no_wait>
bool sums_are_right() {
  std::vector<float> x(kTiles * kThreads * 4), sums(kThreads);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  launch(nullptr, {.grid = dim3(1), .block = dim3(kThreads)}, sum_neighbours<early, no_wait>,
         static_cast<const float*>(x.data()), sums.data());
  for (int thread = 0; thread < kThreads; ++thread) {
    float want = 0;
    for (int tile = 0; tile < kTiles; ++tile) {
      for (int i = 0; i < 4; ++i) {
        want += x[static_cast<std::size_t>((tile * kThreads + (thread + kThreads / 2) % kThreads) * 4 + i)];
      }
    }
    if (sums[static_cast<std::size_t>(thread)] != want) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("emulation: a correct pipeline of copies gives its sums", "[copies]") {
  CHECK(sums_are_right<false, false>());
}

TEST_CASE("emulation: late and early copies show a missing wait and barrier", "[copies]") {
  CHECK(sums_are_right<true, false>() == !emulated_cuda::copies_land_early());
  CHECK(sums_are_right<false, true>() == emulated_cuda::copies_land_early());
}
