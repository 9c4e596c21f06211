// MappedFile: numbers that live in a file on a local disk and are worked on as memory. For what a process needs once in
// a while and need not hold: an optimizer's state. The file has no name, so that a crash leaves nothing of it, and its
// blocks are reserved at once. What is in use is told by use(), block by block; what no longer is leaves memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/system/crash_report.h"

namespace megatron {

class MappedFile {
 public:
  /// Blocks of the file that come into memory and leave it together, and how many use() keeps there.
  static constexpr std::size_t kBlockBytes = std::size_t{4} << 20, kMostOpen = 8;

  /// Makes a file of zeros in an existing folder; `bytes` above 0. `what` it holds and the key that names the folder
  /// are for errors: Error(filesystem), with the bytes that are needed and free, where the folder has no room for it.
  MappedFile(const std::string& folder, std::size_t bytes, const std::string& what, const std::string& key);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Pages that are only read stay as the disk has them; those of `write` are written to it again, changed or not.
  enum class Access { read, write };
  /// Brings these bytes of the mapping into memory, where they may be used until kMostOpen other blocks have been, and
  /// starts reading the block after them. Blocks that were used before leave: they start to be written to the disk,
  /// and only the kernel's cache, which gives way to all other needs, still has them. Throws Error(filesystem) where
  /// the disk did not take what was written earlier, or does not give what is read.
  void use(const void* from, std::size_t bytes, Access access);
  /// Has all blocks leave, also those that were read without use(). Ends a pass.
  void rest();
  /// Reads in the background, until the next use() or rest(), the blocks that the last writing pass began with: at most
  /// `most` bytes, into the kernel's cache.
  void read_ahead(std::size_t most);

 private:
  std::size_t length_of(std::size_t block) const;
  void open_block(std::size_t block, Access access);
  void close_block(std::size_t block);
  [[noreturn]] void fail_to(const char* action, int error) const;

  std::string folder_, what_, key_;
  std::size_t bytes_;
  int file_ = -1;
  std::byte* data_ = nullptr;
  struct Open {
    std::size_t block;
    Access access;
  };
  std::vector<Open> open_;                    // the last one was used last
  std::vector<std::size_t> written_, order_;  // blocks that this pass has opened to write, and that the last one did
  std::optional<MappedFromDisk> told_;
  std::jthread reader_;
};

}  // namespace megatron
