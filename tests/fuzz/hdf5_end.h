// An HDF5 file says how long it is; what a fuzzer cuts or inserts should not fail on that alone.
#pragma once

#include <string>
#include <string_view>

namespace megatron::fuzz {

/// The same bytes, with their number where the superblock has the end of the file.
inline std::string with_right_end(std::string_view bytes) {
  constexpr std::size_t kEndAt = 28;
  std::string file(bytes);
  for (std::size_t i = 0; i < 8 && kEndAt + i < file.size(); ++i) {
    file[kEndAt + i] = static_cast<char>(file.size() >> 8 * i);
  }
  return file;
}

}  // namespace megatron::fuzz
