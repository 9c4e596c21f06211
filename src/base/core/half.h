// 16-bit floats as bits: bfloat16 and IEEE binary16, converted to and from float with rounding to nearest even.
// Branch-free, so that loops over them vectorise. Conversions only: nothing computes in them.
//
// wide() and narrow<T>() are there for all arithmetic types and do nothing where there is nothing to do, so that one
// text of a loop serves every type that tensors may have.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/core/dtype.h"

namespace megatron {

struct BFloat16 {
  std::uint16_t bits;
  bool operator==(const BFloat16&) const = default;  ///< compares the bits
};
struct Float16 {
  std::uint16_t bits;
  bool operator==(const Float16&) const = default;  ///< compares the bits
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};

inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

inline float to_float(Float16 x) {
  const std::uint32_t sign = (x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7FFFu;
  // Exponent and mantissa moved into place, the exponent's bias then put right by an exact multiplication, which also
  // gives subnormals; infinity and NaN get the largest exponent.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t special = magnitude >= 0x7C00u ? 0x7F800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

inline BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded)};
}

/// x rounded by a draw below 65536: to the neighbour further from zero for as many draws as x is 65536ths of the way
/// there, so that the mean over all draws is x. What bf16 can hold stays; so do infinity and NaN.
constexpr BFloat16 draw_bfloat16(float x, std::uint32_t draw) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : (bits + draw) >> 16)};
}

inline Float16 to_float16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  // From 2^-14 on: rebias the exponent and round off 13 bits; a carry may run into the exponent, up to infinity.
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Below: adding 1/2 rounds to a multiple of 2^-24, which is a subnormal's unit.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7C00u : result;  // 2^16 and above
  result = magnitude > 0x7F800000u ? 0x7E00u : result;
  return {static_cast<std::uint16_t>(result | sign)};
}

template <class T>
inline constexpr bool kHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// An element as it is computed with: 16-bit floats as float, everything else as itself.
template <class T>
auto wide(T x) {
  if constexpr (kHalf<T>)
    return to_float(x);
  else
    return x;
}
/// A computed value as an element of type T, rounded to nearest even where T is narrower.
template <class T, class Wide>
T narrow(Wide x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, Float16>)
    return to_float16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

}  // namespace megatron
