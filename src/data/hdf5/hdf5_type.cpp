#include "data/hdf5/hdf5_type.h"

#include <array>

namespace megatron {

std::size_t size_of(Hdf5Type type) {
  static constexpr std::array<std::size_t, 8> kBytes{1, 2, 4, 8, 4, 8, 4, 8};
  return kBytes[static_cast<std::size_t>(type)];
}

const char* name_of(Hdf5Type type) {
  static constexpr std::array kNames{"u8", "u16", "u32", "u64", "i32", "i64", "f32", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace megatron
