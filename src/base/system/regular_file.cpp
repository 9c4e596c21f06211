#include "base/system/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system/errno_text.h"
#include "base/text/foreign_text.h"

namespace megatron {

RegularFile::RegularFile(std::string path, ErrorKind kind) : path_(std::move(path)), kind_(kind) {
  do {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) {
    const int reason = errno;
    verify(reason != ENXIO, kind_, "{}: not a regular file", path_);  // a socket
    fail(reason == ENOENT ? kind_ : ErrorKind::filesystem, "{} cannot be read: {}", path_, errno_text(reason));
  }
  struct stat info {};
  const int reason = ::fstat(descriptor_, &info) == 0 ? 0 : errno;
  const bool regular = S_ISREG(info.st_mode);
  if (reason == 0 && regular) {
    bytes_ = static_cast<std::uint64_t>(info.st_size);
    try {
      refuse_lfs_pointer(descriptor_, bytes_, path_, kind_);
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
    return;
  }
  ::close(descriptor_);  // no destructor runs for what was never constructed
  verify(reason != 0, kind_, "{}: not a regular file", path_);
  fail(ErrorKind::filesystem, "{} cannot be read: {}", path_, errno_text(reason));
}

RegularFile::~RegularFile() {
  ::close(descriptor_);
}

void refuse_lfs_pointer(int descriptor, std::uint64_t bytes, const std::string& path, ErrorKind kind) {
  if (bytes > kLongestLfsPointer) return;
  char beginning[64];
  const ssize_t read = ::pread(descriptor, beginning, sizeof beginning, 0);
  const std::string advice = lfs_advice({beginning, static_cast<std::size_t>(std::max<ssize_t>(read, 0))});
  verify(advice.empty(), kind, "{}: {}", path, advice);
}

int open_for_append(const std::string& path) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return -1;
  struct stat info {};
  const bool known = ::fstat(descriptor, &info) == 0;
  const int reason = known ? ENXIO : errno;
  if (known && !S_ISFIFO(info.st_mode)) {
    ::fcntl(descriptor, F_SETFL, O_APPEND);  // a terminal's writes may wait
    return descriptor;
  }
  ::close(descriptor);
  errno = reason;
  return -1;
}

bool has_name(int descriptor, const std::string& path) {
  struct stat opened {
  }, named{};
  if (::lstat(path.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return ::fstat(descriptor, &opened) != 0 || (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino);
}

void RegularFile::read(std::uint64_t first, void* to, std::uint64_t bytes) const {
  auto* position = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t now = ::pread(descriptor_, position, bytes, static_cast<off_t>(first));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) {
      const int reason = errno;
      fail(ErrorKind::filesystem, "{} cannot be read at byte {}: {}", path_, first, errno_text(reason));
    }
    verify(now > 0, kind_, "{}: ends at byte {}, before what it should hold: it was cut off or is being changed", path_,
           first);
    position += now;
    first += static_cast<std::uint64_t>(now);
    bytes -= static_cast<std::uint64_t>(now);
  }
}

}  // namespace megatron
