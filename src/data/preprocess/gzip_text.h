// GzipText: a gzip file read as the text it holds, at any offset of that text.
//
// Meant for reading forward: going back is free within the last few MiB, and beyond that starts over from the front.
// The length of the text is found by reading all of it once, which also checks it. Files of several members are one
// text; anything else after a member is damage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/system/regular_file.h"

struct z_stream_s;

namespace megatron {

/// Whether the file begins as gzip files do. Nothing is said about files that cannot be read.
bool is_gzip(const std::string& path);
/// ErrorKind::data if the file begins as those of a compression do that is not unpacked here (bzip2, xz, zstd, lz4,
/// zip).
void refuse_other_compression(const std::string& path);

class GzipText {
 public:
  /// `bytes`: the length of the text, if it is known from before; else it is found here. ErrorKind::data if the file is
  /// damaged, ErrorKind::filesystem if it cannot be read.
  explicit GzipText(const std::string& path, std::uint64_t bytes = kUnknown);
  GzipText(const GzipText&) = delete;
  GzipText& operator=(const GzipText&) = delete;

  static constexpr std::uint64_t kUnknown = UINT64_MAX;

  std::uint64_t bytes() const { return bytes_; }
  /// Replaces `buffer` by the bytes [first, first + count) of the text. ErrorKind::data if it ends before.
  void read(std::uint64_t first, std::uint64_t count, std::string& buffer);

 private:
  struct EndInflation {
    void operator()(z_stream_s* stream) const;
  };
  void start_over();
  bool refill();
  bool read_more();

  RegularFile file_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<z_stream_s, EndInflation> stream_;
  std::string packed_;              // the file's bytes that the stream is given
  std::uint64_t packed_begin_ = 0;  // where they begin in the file
  std::uint64_t member_begin_ = 0;
  bool between_members_ = true;
  std::string window_;              // the text read last
  std::uint64_t window_begin_ = 0;  // where it begins in the whole text
};

}  // namespace megatron
