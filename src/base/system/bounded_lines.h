// BoundedLines: the lines of a text file of any size, one after the other, in bounded memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/system/regular_file.h"

namespace megatron {

class BoundedLines {
 public:
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;

  /// Reads what the file has now, from byte `first` on. Errors: filesystem, as of RegularFile.
  explicit BoundedLines(const std::string& path, std::uint64_t first = 0)
      : file_(path, ErrorKind::filesystem), read_(std::min(first, file_.bytes())) {}

  /// Passes over all but the whole lines in the last `bytes` of the file; whether there was more.
  bool go_to_last(std::uint64_t bytes);
  /// The next line without its end; false at the end of the file. A longer line comes cut, with `too_long` true.
  bool next(std::string& line, bool& too_long);
  /// Whether the line that came last had an end: one that is still being written has none.
  bool ended() const { return ended_; }
  /// The byte after the line that came last.
  std::uint64_t position() const { return read_ - (block_.size() - at_); }

 private:
  bool fill();

  RegularFile file_;
  std::uint64_t read_;  // bytes of the file
  std::string block_;
  std::size_t at_ = 0;
  bool ended_ = false;
};

}  // namespace megatron
