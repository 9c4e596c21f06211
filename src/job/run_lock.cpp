#include "job/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/errno_text.h"
#include "base/error.h"
#include "base/host_name.h"

namespace megatron {

namespace {

std::string read_holder(int file) {
  std::array<char, 256> text{};
  const ssize_t size = ::pread(file, text.data(), text.size() - 1, 0);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : "another process";
}

}  // namespace

RunLock::RunLock(const std::string& directory, Log& log) {
  const std::string path = directory + "/lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  verify(file_ >= 0, ErrorKind::filesystem, "cannot open {}: {}", path, errno_text(errno));
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file_);
    fail(ErrorKind::filesystem, "{} is not a regular file; if no job trains in this directory, remove it", path);
  }
  // A lock of the record kind: the one that network file systems carry.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file_, F_SETLK, &whole) != 0) {
    const int error = errno;
    if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL) {
      // Lustre mounted without flock, for instance. Refusing would make training impossible there.
      log.warning("{} cannot be locked ({}): nothing keeps a second job out of this directory", path,
                  std::strerror(error));
      return;
    }
    const std::string holder = read_holder(file_);
    ::close(file_);
    verify(error != EACCES && error != EAGAIN, ErrorKind::filesystem,
           "{} is in use by {}; wait for it to end, or name another run.directory", directory, holder);
    fail(ErrorKind::filesystem, "cannot lock {}: {}", path, std::strerror(error));
  }
  const std::string holder = fmt::format("process {} on {}", ::getpid(), host_name());
  // Who holds it is for people: failing to write it does no harm.
  if (::ftruncate(file_, 0) == 0 && ::pwrite(file_, holder.data(), holder.size(), 0) < 0) errno = 0;
}

RunLock::~RunLock() {
  ::close(file_);
}

}  // namespace megatron
