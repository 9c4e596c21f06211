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

/// A lane's parts of a product of 16 × 16 and 16 × 8 numbers: of two rows of the left side, of one column of the right
/// one, and, once all lanes have come, of the product.
template <class T>
struct Fragments {
  std::uint32_t a[4], b[2];
  double product[4];

  /// Sets the products of all lanes. Lane 4·i + j holds numbers 2·j, 2·j + 1 and those 8 further on of rows i and i + 8
  /// and of column i, and has numbers 2·j and 2·j + 1 of the product's rows i and i + 8.
  static void multiply(emulated_cuda::Slots slots) {
    double left[16][16], right[16][8];  // right by [k][column]
    const auto at = [&](int lane) { return reinterpret_cast<Fragments*>(slots[lane]); };
    const auto number = [](std::uint32_t pair, int which) {
      return static_cast<double>(to_float(T{static_cast<std::uint16_t>(pair >> (16 * which))}));
    };
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int k = 8 * (i / 2) + 2 * (lane % 4);
        for (int which = 0; which < 2; ++which) {
          left[lane / 4 + 8 * (i % 2)][k + which] = number(at(lane)->a[i], which);
          if (i % 2 == 0) right[k + which][lane / 4] = number(at(lane)->b[i / 2], which);
        }
      }
    }
    for (int row = 0; row < 16; ++row) {
      double sums[8] = {};
      for (int k = 0; k < 16; ++k) {
        for (int column = 0; column < 8; ++column) sums[column] += left[row][k] * right[k][column];
      }
      for (int j = 0; j < 8; ++j) at(row % 8 * 4 + j / 2)->product[row / 8 * 2 + j % 2] = sums[j];
    }
  }
};

/// d += a · b for one warp; see cuda/ptx.cuh for who holds what.
template <class T>
void multiply_add_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  const Fragments<T> own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {}};
  static_assert(sizeof own <= emulated_cuda::kSlotBytes);
  const emulated_cuda::Slots slots = emulated_cuda::lay_down(&own, sizeof own, &Fragments<T>::multiply);
  const double* product = reinterpret_cast<const Fragments<T>*>(slots[emulated_cuda::lane()])->product;
  for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(static_cast<double>(d[i]) + product[i]);
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
