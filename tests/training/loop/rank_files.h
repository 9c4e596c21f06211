// Name and contents of a checkpoint's rank files, to compare bit by bit.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "support/temporary_folder.h"

namespace megatron::test {

inline std::map<std::string, std::string> rank_files(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank_")) files[name] = contents_of(entry.path().string());
  }
  return files;
}

}  // namespace megatron::test
