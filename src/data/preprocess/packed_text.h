// PackedText: a compressed file read as the text it holds, at any offset of that text. The kinds are gzip_text.h,
// zstd_text.h and bzip2_text.h.
//
// Meant for reading forward: going back is free within the last few MiB, and beyond that starts over from the front.
// The length of the text is found by reading all of it once, which also checks it. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/system/regular_file.h"

namespace megatron {

/// ErrorKind::data if the file begins as those of a compression do that is not unpacked here (xz, lz4, zip).
void refuse_other_compression(const std::string& path);
/// Whether the file begins with these bytes. Nothing is said about files that cannot be read.
bool begins_with(const std::string& path, std::string_view bytes);

class PackedText {
 public:
  PackedText(const PackedText&) = delete;
  PackedText& operator=(const PackedText&) = delete;
  virtual ~PackedText() = default;

  static constexpr std::uint64_t kUnknown = UINT64_MAX;

  std::uint64_t bytes() const { return bytes_; }
  /// Replaces `buffer` by the bytes [first, first + count) of the text. ErrorKind::data if it ends before.
  void read(std::uint64_t first, std::uint64_t count, std::string& buffer);

 protected:
  explicit PackedText(const std::string& path) : file_(path, ErrorKind::data) {}
  /// For the end of a constructor: takes the length of the text if it is known from before, else finds it.
  void set_bytes(std::uint64_t bytes);

  const std::string& path() const { return file_.path(); }
  /// The file's next bytes, which replace those before; empty at its end.
  const std::string& next_packed();
  std::uint64_t packed_end() const { return packed_begin_ + packed_.size(); }  ///< their end in the file
  /// Unpacks the text's next bytes to `to`, fewer than `room` only at its end; `at`: of the text, for messages.
  virtual std::size_t unpack(char* to, std::size_t room, std::uint64_t at) = 0;
  /// Forgets what was unpacked: the next bytes are those of the beginning.
  virtual void reset() = 0;

 private:
  void start_over();
  bool read_more();

  RegularFile file_;
  std::uint64_t bytes_ = 0;
  std::string packed_;              // the file's bytes that are being unpacked
  std::uint64_t packed_begin_ = 0;  // where they begin in the file
  std::string window_;              // the text read last
  std::uint64_t window_begin_ = 0;  // where it begins in the whole text
};

/// The text of a file that gzip, zstd or bzip2 has compressed, by its first bytes; nullptr for another file. `bytes`:
/// the length of the text, if it is known. ErrorKind::data if it is damaged, ErrorKind::filesystem if it cannot be
/// read.
std::unique_ptr<PackedText> open_packed(const std::string& path, std::uint64_t bytes = PackedText::kUnknown);

}  // namespace megatron
