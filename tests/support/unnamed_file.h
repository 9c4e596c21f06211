// The file without a name that a program has open below a folder, and its pages in the kernel's cache.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/core/error.h"

namespace megatron::test {

/// The path that reaches the open file without a name below a folder.
inline std::string open_file_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && target.starts_with(folder + "/") && target.ends_with("(deleted)")) return entry.path().string();
  }
  return "";
}

class UnnamedFile {
 public:
  explicit UnnamedFile(const std::string& folder)
      : file_(::open(open_file_in(std::filesystem::canonical(folder).string()).c_str(), O_RDWR | O_CLOEXEC)) {
    struct stat facts {};
    internal_check(::fstat(file_, &facts) == 0, "no file without a name");
    bytes_ = static_cast<std::size_t>(facts.st_size);
    memory_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file_, 0);
    internal_check(memory_ != MAP_FAILED, "a file that cannot be mapped");
  }
  ~UnnamedFile() {
    ::munmap(memory_, bytes_);
    ::close(file_);
  }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  /// The pages of each block that are in the kernel's cache: all (1), some (-) or none (0).
  std::string cached(std::size_t block_bytes) const {
    std::vector<unsigned char> pages((bytes_ + kPage - 1) / kPage);
    internal_check(::mincore(memory_, bytes_, pages.data()) == 0, "mincore");
    std::string blocks;
    for (std::size_t first = 0; first < pages.size(); first += block_bytes / kPage) {
      const auto begin = pages.begin() + static_cast<std::ptrdiff_t>(first);
      const auto all = static_cast<std::ptrdiff_t>(std::min(block_bytes / kPage, pages.size() - first));
      const auto in = std::count_if(begin, begin + all, [](int page) { return (page & 1) != 0; });
      blocks += in == 0 ? '0' : in == all ? '1' : '-';
    }
    return blocks;
  }
  /// Empties the cache of it. False where the file system does not let that be done, or seen.
  bool drop() const {
    char byte = 0;
    // A read brings its page, and no more.
    if (::fsync(file_) != 0 || ::posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM) != 0) return false;
    if (::pread(file_, &byte, 1, 0) != 1 || cached(kPage).front() != '1' || ::readahead(file_, 0, kPage) != 0) {
      return false;
    }
    return ::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED) == 0 && cached(kPage).find('1') == std::string::npos;
  }

 private:
  const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  int file_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

}  // namespace megatron::test
