// Lines of a stream whose writer may be a person or another program: of any length, at any time. A signal ends the
// waiting.
#pragma once

#include <cstddef>
#include <string>

#include "generation/line_source.h"

namespace megatron {

class LineReader : public LineSource {
 public:
  /// Of a descriptor that stays the caller's. Lines of more than `longest` bytes are left out.
  explicit LineReader(int descriptor, std::size_t longest = std::size_t{64} << 20)
      : descriptor_(descriptor), longest_(longest) {}

  /// What was typed before a signal is kept for the next call. A last line without end counts.
  Outcome next(std::string& line) override;

 private:
  int descriptor_;
  std::size_t longest_;
  std::string buffer_;
  std::size_t searched_ = 0;  // of the buffer: without a line's end
  bool skipping_ = false, ended_ = false;
};

}  // namespace megatron
