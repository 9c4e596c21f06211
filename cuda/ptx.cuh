// Single instructions as functions: conversions to and from 16 bits, tensor cores, copies into shared memory. For
// sm_80 and later; what each does is the PTX manual's. The tests have a second file of this name that does the same
// without a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/core/half.h"

namespace megatron::ptx {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(BFloat16 x) {
  return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float to_float(Float16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

/// Rounded to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ BFloat16 from_float<BFloat16>(float x) {
  BFloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
template <>
__device__ __forceinline__ Float16 from_float<Float16>(float x) {
  Float16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

/// Two values as 16-bit floats of type T in one register, `low` in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack<BFloat16>(float low, float high) {
  std::uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
template <>
__device__ __forceinline__ std::uint32_t pack<Float16>(float low, float high) {
  std::uint32_t result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

/// 2^x to about 2^-22, 0 for what would be subnormal.
__device__ __forceinline__ float exp2_approximately(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// d += a · b by one warp on the tensor cores, a[16, 16] and b[16, 8] of 16-bit floats T, d[16, 8] of f32.
/// Lane l holds, with g = l / 4 and m = l % 4, two neighbouring elements a register (the first in the low half):
///   a[0] row g, columns 2m and 2m + 1;  a[1] row g + 8;  a[2] row g, columns + 8;  a[3] row g + 8, columns + 8
///   b[0] rows 2m and 2m + 1 of column g;  b[1] rows + 8
///   d[0], d[1] row g, columns 2m and 2m + 1;  d[2], d[3] row g + 8
template <class T>
__device__ __forceinline__ void multiply_add_16x8x16(float (&d)[4], const std::uint32_t (&a)[4],
                                                     const std::uint32_t (&b)[2]);
template <>
__device__ __forceinline__ void multiply_add_16x8x16<BFloat16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                               const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void multiply_add_16x8x16<Float16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                              const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Four 8 × 8 matrices of 16-bit elements out of shared memory. Lane l gives the address (16-byte aligned) of row l % 8
/// of matrix l / 8, and gets of matrix i in registers[i] row l / 4, columns 2 (l % 4) and the next.
__device__ __forceinline__ void load_4_matrices(std::uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}
/// The same of the matrices' transposes: rows 2 (l % 4) and the next of column l / 4.
__device__ __forceinline__ void load_4_matrices_transposed(std::uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Starts a copy of 16 bytes from global to shared memory, both 16-byte aligned; zeros where not valid (`global` must
/// be some address of global memory all the same). This thread's copies up to a commit are a group.
__device__ __forceinline__ void copy_16_bytes_later(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until all but the newest `groups_left` groups of this thread have landed; other threads' need a barrier after it.
template <int groups_left>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

}  // namespace megatron::ptx
