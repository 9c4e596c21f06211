#include "base/system/file_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/system/errno_text.h"
#include "base/system/host_name.h"
#include "base/system/lock_holder.h"
#include "base/system/notes.h"

namespace megatron {

namespace {

std::string read_holder(int file) {
  std::array<char, 256> text{};
  const ssize_t size = ::pread(file, text.data(), text.size() - 1, 0);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : "another process";
}

/// A lock of the record kind: the one that network file systems carry. 0 or an errno.
int lock_whole(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  int result = 0;
  do {
    result = ::fcntl(file, F_SETLK, &whole);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

FileLock::FileLock(const std::string& path) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file_ < 0) fail_with_errno("open", path);
  struct stat status {};
  const int unknown = ::fstat(file_, &status) == 0 ? 0 : errno;
  const int error = unknown == 0 && S_ISREG(status.st_mode) ? lock_whole(file_) : 0;
  // Lustre mounted without flock, for instance. Refusing would make work impossible there.
  const bool unsupported = error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
  const bool in_use = error == EACCES || error == EAGAIN;
  if (in_use) reason_ = read_holder(file_);
  if (unknown != 0 || !S_ISREG(status.st_mode) || (error != 0 && !unsupported && !in_use)) {
    ::close(file_);
    verify(unknown == 0, ErrorKind::filesystem, "cannot look at {}: {}", path, errno_text(unknown));
    verify(error != 0, ErrorKind::filesystem, "{} is not a regular file; if no command is running there, remove it",
           path);
    fail(ErrorKind::filesystem, "cannot lock {}: {}", path, errno_text(error));
  }
  if (in_use) outcome_ = Outcome::in_use;
  if (unsupported) {
    outcome_ = Outcome::unsupported;
    reason_ = errno_text(error);
  }
  if (outcome_ != Outcome::held) return;
  const std::string holder = fmt::format("process {} on {}", ::getpid(), host_name());
  // Who holds it is for people: failing to write it does no harm.
  if (::ftruncate(file_, 0) == 0 && ::pwrite(file_, holder.data(), holder.size(), 0) < 0) errno = 0;
}

FileLock::~FileLock() {
  ::close(file_);
}

void FileLock::lock_again() {
  if (outcome_ == Outcome::held) lock_whole(file_);
}

bool FileLock::has_its_name() const {
  struct stat opened {
  }, named{};
  if (::lstat(path_.c_str(), &named) != 0) {
    if (errno != ENOENT) fail_with_errno("look at", path_);
    return false;
  }
  if (::fstat(file_, &opened) != 0) {
    if (errno != ESTALE) fail_with_errno("look at", path_);
    return false;  // removed by another host of a network file system: the name is another file's
  }
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

bool FileLock::was_moved() const {
  struct stat opened {};
  return ::fstat(file_, &opened) == 0 && opened.st_nlink > 0 && !has_its_name();
}

std::string lock_holder(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return "";
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const bool held = ::fcntl(file, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  std::string holder = held ? read_holder(file) : "";
  ::close(file);
  return holder;
}

MadeFolders::MadeFolders(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::path at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path()) made_.push_back(at.string());
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, errno_text(error.value()));
  for (const std::string& made : made_) sync_path(folder_of(made));
}

MadeFolders::~MadeFolders() {
  for (const std::string& made : made_) ::rmdir(made.c_str());  // only what is empty goes
}

TargetLock::TargetLock(const std::string& target)
    : path_(folder_of(target) + "/." + std::filesystem::path(target).filename().string() + ".lock"),
      folders_(folder_of(target)) {
  do {  // until it is not the file of a command that has just removed it and ended
    lock_ = std::make_unique<FileLock>(path_);
    if (lock_->outcome() != FileLock::Outcome::in_use) continue;
    fail(ErrorKind::filesystem, "{} is being written by {}; wait for it to end, or choose another name", target,
         lock_->reason());
  } while (!lock_->has_its_name());
  if (lock_->outcome() != FileLock::Outcome::unsupported) return;
  print_warning(fmt::format("{} cannot be locked ({}): nothing keeps a second command from writing {} at the same time",
                            path_, lock_->reason(), target));
}

TargetLock::~TargetLock() {
  try {
    if (lock_->has_its_name()) remove_quietly(path_);  // else it was removed, and may be another command's by now
  } catch (const Error&) {                             // a lock file that no process holds is in no one's way
  }
}

}  // namespace megatron
