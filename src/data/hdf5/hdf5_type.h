// The element types of datasets: little-endian numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace megatron {

enum class Hdf5Type : std::uint8_t { u8, u16, u32, u64, i32, i64, f32, f64 };
std::size_t size_of(Hdf5Type type);  ///< in bytes
const char* name_of(Hdf5Type type);

template <class T>
struct Hdf5TypeOf;
template <>
struct Hdf5TypeOf<std::uint8_t> : std::integral_constant<Hdf5Type, Hdf5Type::u8> {};
template <>
struct Hdf5TypeOf<std::uint16_t> : std::integral_constant<Hdf5Type, Hdf5Type::u16> {};
template <>
struct Hdf5TypeOf<std::uint32_t> : std::integral_constant<Hdf5Type, Hdf5Type::u32> {};
template <>
struct Hdf5TypeOf<std::uint64_t> : std::integral_constant<Hdf5Type, Hdf5Type::u64> {};
template <>
struct Hdf5TypeOf<std::int32_t> : std::integral_constant<Hdf5Type, Hdf5Type::i32> {};
template <>
struct Hdf5TypeOf<std::int64_t> : std::integral_constant<Hdf5Type, Hdf5Type::i64> {};
template <>
struct Hdf5TypeOf<float> : std::integral_constant<Hdf5Type, Hdf5Type::f32> {};
template <>
struct Hdf5TypeOf<double> : std::integral_constant<Hdf5Type, Hdf5Type::f64> {};

}  // namespace megatron
