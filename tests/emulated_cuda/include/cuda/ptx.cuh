// Stands in for cuda/ptx.cuh: the same functions, by what the PTX manual says of each instruction.
#pragma once

#include <cuda_runtime.h>

#include "base/core/half.h"

namespace megatron::ptx {

using megatron::to_float;

template <class T>
T from_float(float x) {
  return narrow<T>(x);
}
template <class T>
std::uint32_t pack(float low, float high) {
  return std::bit_cast<std::uint16_t>(narrow<T>(low)) |
         static_cast<std::uint32_t>(std::bit_cast<std::uint16_t>(narrow<T>(high))) << 16;
}

inline float exp2_approximately(float x) {
  return std::exp2(x);
}

/// d += a · b for one warp; see cuda/ptx.cuh for who holds what.
template <class T>
void multiply_add_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  struct Fragments {
    std::uint32_t a[4], b[2];
  } own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const emulated_cuda::Slots slots = emulated_cuda::lay_down(&own, sizeof own);
  const auto fragments = [&](int lane) {
    Fragments result;
    std::memcpy(&result, slots[lane], sizeof result);
    return result;
  };
  const auto half = [](std::uint32_t pair, int which) {
    return to_float(T{static_cast<std::uint16_t>(pair >> (16 * which))});
  };
  const int lane = emulated_cuda::lane(), group = lane / 4, member = lane % 4;
  double sums[4] = {};
  for (int k = 0; k < 16; ++k) {
    const int owner = k % 8 / 2, upper = k / 8;
    for (int column = 0; column < 2; ++column) {
      const float right = half(fragments((2 * member + column) * 4 + owner).b[upper], k % 2);
      for (int row = 0; row < 2; ++row) {
        const float left = half(fragments(group * 4 + owner).a[2 * upper + row], k % 2);
        sums[2 * row + column] += static_cast<double>(left) * static_cast<double>(right);
      }
    }
  }
  for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(static_cast<double>(d[i]) + sums[i]);
}

inline void load_matrices(std::uint32_t (&registers)[4], const void* row, bool transposed) {
  const emulated_cuda::Slots slots = emulated_cuda::lay_down(&row, sizeof row);
  const int lane = emulated_cuda::lane();
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int r = transposed ? 2 * (lane % 4) + i : lane / 4, c = transposed ? lane / 4 : 2 * (lane % 4) + i;
      const std::uint16_t* address;
      std::memcpy(&address, slots[8 * matrix + r], sizeof address);
      if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) std::abort();
      pair[i] = address[c];
    }
    registers[matrix] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
  }
}
inline void load_4_matrices(std::uint32_t (&registers)[4], const void* row) {
  load_matrices(registers, row, false);
}
inline void load_4_matrices_transposed(std::uint32_t (&registers)[4], const void* row) {
  load_matrices(registers, row, true);
}

inline void copy_16_bytes_later(void* shared, const void* global, bool valid) {
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      (valid && reinterpret_cast<std::uintptr_t>(global) % 16 != 0))
    std::abort();
  emulated_cuda::copy_later(shared, valid ? global : nullptr, 16);
}
inline void commit_copies() {
  emulated_cuda::commit_copies();
}
template <int groups_left>
void wait_for_copies() {
  emulated_cuda::wait_for_copies(groups_left);
}

}  // namespace megatron::ptx
