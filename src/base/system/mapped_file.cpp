#include "base/system/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "base/core/error.h"
#include "base/system/errno_text.h"

namespace megatron {

namespace {

// Older C libraries do not name them; kernels that lack them answer EINVAL.
constexpr int kAdviseCold = 20, kAdvisePopulateWrite = 23;

// A file that no folder lists: without a name from the start, or, where the file system has no such files, from now on.
int open_unnamed(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string path = folder + "/.state.XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) (void)::unlink(path.c_str());
  return named;
}

int reserve(int file, std::size_t bytes) {
  int error = 0;
  do error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  while (error == EINTR);
  return error;
}

std::string free_in(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return "unknown";
  return fmt::format("{}", static_cast<std::uintmax_t>(disk.f_bavail) * disk.f_frsize);
}

}  // namespace

MappedFile::MappedFile(const std::string& folder, std::size_t bytes, const std::string& what, const std::string& key)
    : folder_(folder), what_(what), key_(key), bytes_(bytes) {
  internal_check(bytes > 0, "an empty file to be mapped");
  file_ = open_unnamed(folder);
  if (file_ < 0) {
    fail(ErrorKind::filesystem, "cannot make a file for {} in {}: {}; {} names the folder, which every node must have",
         what, folder, errno_text(errno), key);
  }
  if (const int error = reserve(file_, bytes); error != 0) {
    ::close(file_);
    fail(ErrorKind::filesystem, "cannot reserve {} bytes for {} in {}, where {} are free: {}; {} names the folder",
         bytes, what, folder, free_in(folder), errno_text(error), key);
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    ::close(file_);
    fail(ErrorKind::filesystem, "cannot map {} bytes of {} in {}: {}; {} names the folder", bytes, what, folder,
         errno_text(error), key);
  }
  data_ = static_cast<std::byte*>(memory);
  told_.emplace(data_, bytes_,
                fmt::format("the file of {} in {} cannot be read or written: its disk fails or is gone; the newest "
                            "checkpoint is whole: run the same command again, with {} on another disk if need be",
                            what_, folder_, key_));
}

MappedFile::~MappedFile() {
  told_.reset();
  ::munmap(data_, bytes_);
  ::close(file_);
}

void MappedFile::fail_to(const char* action, int error) const {
  fail(ErrorKind::filesystem,
       "cannot {} the file of {} in {}: {}; the newest checkpoint is whole: run the same command again, with {} on "
       "another disk if need be",
       action, what_, folder_, errno_text(error), key_);
}

std::size_t MappedFile::length_of(std::size_t block) const {
  return std::min(kBlockBytes, bytes_ - block * kBlockBytes);
}

// An error of the disk is told here, before numbers that were lost could be read again.
void MappedFile::open_block(std::size_t block) {
  const auto offset = static_cast<off_t>(block * kBlockBytes);
  const auto length = static_cast<off_t>(length_of(block));
  if (::sync_file_range(file_, offset, length, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 &&
      (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
    fail_to("write", errno);
  }
  const std::size_t next = block + 1;
  if (next * kBlockBytes < bytes_) (void)::madvise(data_ + next * kBlockBytes, length_of(next), MADV_WILLNEED);
  int failed = 0;
  do failed = ::madvise(data_ + block * kBlockBytes, length_of(block), kAdvisePopulateWrite);
  while (failed != 0 && errno == EINTR);
  if (failed != 0 && (errno == EFAULT || errno == EIO)) fail_to("read", EIO);
}

// Requests alone: the kernel does later by itself what it does not do now.
void MappedFile::close_block(std::size_t block) {
  const std::size_t offset = block * kBlockBytes;
  (void)::sync_file_range(file_, static_cast<off_t>(offset), static_cast<off_t>(length_of(block)),
                          SYNC_FILE_RANGE_WRITE);
  (void)::madvise(data_ + offset, length_of(block), kAdviseCold);
  (void)::madvise(data_ + offset, length_of(block), MADV_DONTNEED);  // loses nothing of a shared mapping
}

void MappedFile::use(const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const auto first = static_cast<std::size_t>(static_cast<const std::byte*>(from) - data_);
  internal_check(first < bytes_ && bytes <= bytes_ - first, "memory outside of a mapped file", first, bytes, bytes_);
  for (std::size_t block = first / kBlockBytes; block <= (first + bytes - 1) / kBlockBytes; ++block) {
    const auto found = std::find(open_.begin(), open_.end(), block);
    if (found != open_.end()) {
      std::rotate(found, found + 1, open_.end());
      continue;
    }
    open_block(block);
    open_.push_back(block);
    if (open_.size() <= kMostOpen) continue;
    close_block(open_.front());
    open_.erase(open_.begin());
  }
}

void MappedFile::rest() {
  for (const std::size_t block : open_) close_block(block);
  open_.clear();
  (void)::madvise(data_, bytes_, MADV_DONTNEED);
}

std::string storage_that_is_no_local_disk(const std::string& folder) {
  struct statfs disk {};
  if (::statfs(folder.c_str(), &disk) != 0) return "";
  switch (static_cast<std::uint32_t>(disk.f_type)) {
    case 0x01021994:
    case 0x858458F6: return "tmpfs";
    case 0x6969: return "nfs";
    case 0x0BD00BD0: return "lustre";
    case 0x47504653: return "gpfs";
    case 0x19830326: return "beegfs";
    case 0x00C36400: return "ceph";
    case 0xFF534D42:
    case 0xFE534D42:
    case 0x517B: return "smb";
    default: return "";
  }
}

}  // namespace megatron
