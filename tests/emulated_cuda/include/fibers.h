// The threads of a CUDA block as fibers of one host thread, for running kernels without a GPU.
//
// Every thread runs until it comes to a barrier or to an exchange between the lanes of its warp, and continues when all
// threads that must have come there have. The model is taken by the letter: a barrier that some threads of the block do
// not reach, or an exchange without one of the warp's lanes, ends the program with a message. Knows nothing of the
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
  unsigned x, y, z;
};

namespace emulated_cuda {

// About the thread that runs.
const uint3& current_thread();
const uint3& current_block();
const dim3& block_extent();
const dim3& grid_extent();
int lane();

void synchronize_block();
bool any_of_block(bool flag);  ///< a barrier, too
void synchronize_warp();

/// Values that all lanes of a warp lay down for each other, until the lane's next exchange. A barrier of the warp.
inline constexpr std::size_t kSlotBytes = 64;
using Slots = std::byte (*)[kSlotBytes];
/// The last lane that comes calls `complete`, if given, with the slots of all before any lane continues.
Slots lay_down(const void* value, std::size_t bytes, void (*complete)(Slots) = nullptr);

/// Lane `from`'s value. The mask must be full.
void check_mask(unsigned mask);
template <class T>
T exchange(unsigned mask, const T& value, int from) {
  static_assert(sizeof(T) <= kSlotBytes);
  check_mask(mask);
  const Slots slots = lay_down(&value, sizeof value);
  T result;
  std::memcpy(&result, slots[from], sizeof result);
  return result;
}

// cp.async lands between its issue and the wait for it: here at the wait, so that a missing wait shows, or with
// MEGATRON_EMULATED_COPIES=early at the issue, so that a copy shows that is issued before all have read its place.
bool copies_land_early();
void copy_later(void* to, const void* from, std::size_t bytes);
void commit_copies();
void wait_for_copies(int groups_left);

std::size_t shared_bytes_per_block();  ///< that a block can have on the current device
std::byte* dynamic_shared_memory();    ///< the block's; filled with signalling NaNs when it starts

/// Runs `thread` for every thread of every block. Blocks run one after the other, threads in order of their number, or
/// backwards with MEGATRON_EMULATED_ORDER=backwards: what depends on the order lacks a barrier. One launch at a time
/// per host thread.
void run(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& thread);

}  // namespace emulated_cuda
