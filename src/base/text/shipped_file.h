// Texts of files below inputs/ that are part of the programs: CMake makes functions that have them (embed_files.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace megatron {

struct ShippedFile {
  std::string_view name, text;  ///< the name without folder and extension
};

}  // namespace megatron
