#include "base/system/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>

#include "base/core/error.h"
#include "base/system/errno_text.h"
#include "base/system/storage.h"

namespace megatron {

namespace {

// Older C libraries do not name them; kernels that lack them answer EINVAL.
constexpr int kAdviseCold = 20, kAdvisePopulateRead = 22, kAdvisePopulateWrite = 23;

int reserve(int file, std::size_t bytes) {
  int error = 0;
  do error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  while (error == EINTR);
  return error;
}

// The kernel reads no more of one request than a disk's read_ahead_kb, whose default this is, and forgets the rest.
constexpr std::size_t kRequestBytes = 128 << 10;

// An error of the disk is told by the use of what was not read.
void request(int file, std::size_t first, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kRequestBytes) {
    (void)::readahead(file, static_cast<off64_t>(first + at), std::min(kRequestBytes, bytes - at));
  }
}

// For an error that has another cause.
std::string free_in(const std::string& folder) {
  try {
    const std::optional<std::int64_t> free = free_space(folder);
    return free ? fmt::format("{}", *free) : "unknown";
  } catch (const Error&) {
    return "unknown";
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& folder, std::size_t bytes, const std::string& what, const std::string& key)
    : folder_(folder), what_(what), key_(key), bytes_(bytes) {
  internal_check(bytes > 0, "an empty file to be mapped");
  file_ = open_unnamed_file(folder);
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
  reader_ = {};
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
void MappedFile::open_block(std::size_t block, Access access) {
  const auto offset = static_cast<off_t>(block * kBlockBytes);
  const auto length = static_cast<off_t>(length_of(block));
  if (::sync_file_range(file_, offset, length, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 &&
      (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
    fail_to("write", errno);
  }
  const std::size_t next = block + 1;
  if (next * kBlockBytes < bytes_) request(file_, next * kBlockBytes, length_of(next));
  int failed = 0;
  const int populate = access == Access::write ? kAdvisePopulateWrite : kAdvisePopulateRead;
  do failed = ::madvise(data_ + block * kBlockBytes, length_of(block), populate);
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

void MappedFile::use(const void* from, std::size_t bytes, Access access) {
  if (bytes == 0) return;
  reader_ = {};
  const auto first = static_cast<std::size_t>(static_cast<const std::byte*>(from) - data_);
  internal_check(first < bytes_ && bytes <= bytes_ - first, "memory outside of a mapped file", first, bytes, bytes_);
  for (std::size_t block = first / kBlockBytes; block <= (first + bytes - 1) / kBlockBytes; ++block) {
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.block == block; });
    if (found != open_.end()) {
      std::rotate(found, found + 1, open_.end());
      if (access == Access::read || open_.back().access == Access::write) continue;
      open_.pop_back();
    }
    open_block(block, access);
    open_.push_back({block, access});
    if (access == Access::write) written_.push_back(block);
    if (open_.size() <= kMostOpen) continue;
    close_block(open_.front().block);
    open_.erase(open_.begin());
  }
}

void MappedFile::rest() {
  reader_ = {};
  for (const Open& one : open_) close_block(one.block);
  open_.clear();
  (void)::madvise(data_, bytes_, MADV_DONTNEED);
  if (written_.empty()) return;
  order_.swap(written_);
  written_.clear();
}

void MappedFile::read_ahead(std::size_t most) {
  const std::size_t blocks = std::min(most / kBlockBytes, order_.size());
  if (blocks == 0) return;
  reader_ = {};
  try {
    reader_ = std::jthread([this, blocks](const std::stop_token& stop) {
      for (std::size_t i = 0; i < blocks && !stop.stop_requested(); ++i) {
        request(file_, order_[i] * kBlockBytes, length_of(order_[i]));
      }
    });
  } catch (const std::system_error&) {
    // Without a thread the update reads by itself.
  }
}

}  // namespace megatron
