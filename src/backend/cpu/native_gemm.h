// Products of bf16 matrices by the processor's own instructions, summed in f32 and rounded once. An element of the
// result is the same bits whatever other rows and columns are computed with it: the order of its sum follows from the
// depth alone. Subnormal numbers count as 0, as these instructions take them.
//
// On the calling thread alone. Knows pointers only, no tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/half_products.h"
#include "backend/cpu/native_tiles.h"
#include "backend/cpu/widening_gemm.h"

namespace megatron {

/// Instructions of these products, which are not `widened`.
const native::Kernel& native_kernel(HalfProducts products);

/// Scratch that native_gemm needs for a product of at most this size with results of this type, a multiple of a cache
/// line; the same for all instructions.
std::size_t native_gemm_bytes(ProductSize size, DType result);

/// c = op(a) · op(b), added to c if `accumulate`. Result is float or BFloat16. `products`: those of this processor, not
/// `widened`. `memory`: native_gemm_bytes, on a cache line.
template <class Result>
void native_gemm(HalfProducts products, ProductSize size, ProductInput<BFloat16> a, ProductInput<BFloat16> b, Result* c,
                 std::int64_t c_stride, bool accumulate, std::byte* memory);

inline constexpr std::int64_t kMostNativeRows = 32;  ///< rows of a in native_few_rows

/// The same where a has few rows, as in decoding, and c = a · bᵀ. b is read once, from where it lies. `memory`:
/// native_few_rows_bytes, on a cache line.
template <class Result>
void native_few_rows(HalfProducts products, ProductSize size, ProductInput<BFloat16> a, ProductInput<BFloat16> b,
                     Result* c, std::int64_t c_stride, bool accumulate, std::byte* memory);
std::size_t native_few_rows_bytes(ProductSize size);

}  // namespace megatron
