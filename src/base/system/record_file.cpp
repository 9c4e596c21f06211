#include "base/system/record_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/system/errno_text.h"
#include "base/system/regular_file.h"

namespace megatron {

RecordFile::RecordFile(std::string path, Log& log, std::string lost)
    : path_(std::move(path)), lost_(std::move(lost)), log_(log) {}

RecordFile::~RecordFile() {
  if (file_ >= 0) ::close(file_);
}

bool RecordFile::ensure_open() {
  if (file_ >= 0 && has_name(file_, path_)) return true;
  const int opened = open_for_append(path_);
  struct stat status {};
  const bool moved = file_ >= 0 && ::fstat(file_, &status) == 0 && status.st_nlink > 0;
  if (opened < 0 && moved) return true;
  const int reason = errno;
  if (file_ >= 0) ::close(file_);
  file_ = opened;
  errno = reason;
  return file_ >= 0;
}

bool RecordFile::append(std::string_view record, std::string_view header) {
  if (!ensure_open()) return warn_once(errno);
  struct stat status {};
  if (header.empty() || ::fstat(file_, &status) != 0 || status.st_size > 0) return write_all(record);
  return write_all(std::string(header) + std::string(record));
}

bool RecordFile::write_all(std::string_view text) {
  struct stat before {};
  const bool known = ::fstat(file_, &before) == 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOSPC;
      // Take a torn record back, so that the next one does not continue it.
      if (known && rest.size() < text.size() && ::ftruncate(file_, before.st_size) != 0) warn_once(errno);
      return warn_once(error);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool RecordFile::warn_once(int error) {
  if (!warned_) log_.warning("cannot write {}: {}; {}", path_, errno_text(error), lost_);
  warned_ = true;
  return false;
}

}  // namespace megatron
