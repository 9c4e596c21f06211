#include "data/finetuning/example_files.h"

#include <algorithm>
#include <filesystem>

#include "base/system/errno_text.h"
#include "base/system/regular_file.h"

namespace megatron {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

}  // namespace

std::string read_example_file(const std::string& path) {
  const RegularFile file(path, ErrorKind::data);
  verify(file.bytes() <= kMostBytes, ErrorKind::data,
         "{} has {} bytes, and a file of examples at most 1 GiB; cut it into several", path, file.bytes());
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

std::vector<std::string> example_files(const std::string& path, const std::string& ending) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().string();
    if (name.ends_with(ending) && entry->is_regular_file(error)) files.push_back(name);
  }
  if (error) fail(ErrorKind::filesystem, "{}: cannot read this folder: {}", path, errno_text(error.value()));
  verify(!files.empty(), ErrorKind::data, "{} has no files that end with {}", path, ending);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace megatron
