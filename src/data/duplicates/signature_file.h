// SignatureFile: records of a few 64-bit words in a scratch file that checks itself. Written once, read in order.
//
// A header with the number of records, then blocks of records, each followed by its XXH3 hash, seeded with its place.
// Sizes are checked before memory is allocated. What cannot be written or read is ErrorKind::filesystem, a file that
// is damaged, cut off or was never finished ErrorKind::data; both name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/system/regular_file.h"

namespace megatron {

/// Most bytes of a block, whatever a header says.
inline constexpr std::size_t kMostBlockBytes = std::size_t{16} << 20;

class SignatureFileWriter {
 public:
  /// Creates the file, which must not exist. Blocks have at most `block_bytes` (at most kMostBlockBytes), which is the
  /// memory that it takes.
  SignatureFileWriter(std::string path, std::size_t words, std::size_t block_bytes);
  SignatureFileWriter(const SignatureFileWriter&) = delete;
  SignatureFileWriter& operator=(const SignatureFileWriter&) = delete;
  ~SignatureFileWriter();  ///< removes a file that was not finished

  void append(std::span<const std::uint64_t> record);
  /// The file is complete. Not flushed to the disk: it is scratch.
  void finish();

 private:
  void write_block();
  void write(const void* data, std::size_t bytes);

  std::string path_;
  std::size_t words_, block_words_;
  int file_ = -1;
  std::uint64_t records_ = 0, blocks_ = 0;
  std::vector<std::uint64_t> block_;
};

class SignatureFileReader {
 public:
  /// Opens a finished file of records of this many words.
  SignatureFileReader(std::string path, std::size_t words);

  std::uint64_t records() const { return records_; }
  /// The next record, valid until the next call; none at the end. Records must ascend.
  std::span<const std::uint64_t> next();

 private:
  void read_block();

  RegularFile file_;
  std::size_t words_, block_words_ = 0, at_ = 0;
  std::uint64_t records_ = 0, left_ = 0, position_ = 0, blocks_ = 0;
  std::vector<std::uint64_t> block_, last_;
};

}  // namespace megatron
