// A folder for scratch files, and writing to them.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

class ScratchFolder {
 public:
  /// Makes PARENT/NAME, empty, which no one else uses; the destructor removes it, and PARENT if nothing is left there.
  /// Errors are ErrorKind::filesystem.
  ScratchFolder(std::string parent, const std::string& name);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::string& path() const { return path_; }

 private:
  std::string parent_, path_;
};

/// Creates the file if need be. ErrorKind::filesystem.
void append_to_file(const std::string& path, std::string_view bytes);

}  // namespace megatron
