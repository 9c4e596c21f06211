// The element types of datasets: little-endian numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megatron {

enum class Hdf5Type : std::uint8_t { u8, u16, u32, u64, i32, i64, f32, f64 };
std::size_t size_of(Hdf5Type type);  ///< in bytes
const char* name_of(Hdf5Type type);

template <class T>
struct Hdf5TypeOf;
template <>
struct Hdf5TypeOf<std::uint8_t> {
  static constexpr Hdf5Type value = Hdf5Type::u8;
};
template <>
struct Hdf5TypeOf<std::uint16_t> {
  static constexpr Hdf5Type value = Hdf5Type::u16;
};
template <>
struct Hdf5TypeOf<std::uint32_t> {
  static constexpr Hdf5Type value = Hdf5Type::u32;
};
template <>
struct Hdf5TypeOf<std::uint64_t> {
  static constexpr Hdf5Type value = Hdf5Type::u64;
};
template <>
struct Hdf5TypeOf<std::int32_t> {
  static constexpr Hdf5Type value = Hdf5Type::i32;
};
template <>
struct Hdf5TypeOf<std::int64_t> {
  static constexpr Hdf5Type value = Hdf5Type::i64;
};
template <>
struct Hdf5TypeOf<float> {
  static constexpr Hdf5Type value = Hdf5Type::f32;
};
template <>
struct Hdf5TypeOf<double> {
  static constexpr Hdf5Type value = Hdf5Type::f64;
};

}  // namespace megatron
