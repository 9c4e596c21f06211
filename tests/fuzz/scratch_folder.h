// A folder of files for readers of several, in memory where there is such a place. Gone when it ends.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/fuzz.h"

namespace megatron::fuzz {

class ScratchFolder {
 public:
  ScratchFolder()
      : path_((::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/megatron_fuzz_XXXXXX")) {
    require(::mkdtemp(path_.data()) != nullptr, "no scratch folder: not a finding");
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, std::string_view contents) const {
    std::ofstream(file(name), std::ios::binary).write(contents.data(), static_cast<std::streamsize>(contents.size()));
  }

 private:
  std::string path_;
};

}  // namespace megatron::fuzz
