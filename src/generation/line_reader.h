// Lines of a stream whose writer may be a person or another program: at any time, and of any length up to 1 GiB, where
// the stream is taken for ended. A signal ends the waiting.
#pragma once

#include <cstddef>
#include <string>

#include "generation/line_source.h"

namespace megatron {

class LineReader : public LineSource {
 public:
  /// Reads from a descriptor that stays the caller's. Lines of more than `longest` bytes are left out.
  explicit LineReader(int descriptor, std::size_t longest = std::size_t{16} << 20)
      : descriptor_(descriptor), longest_(longest) {}

  /// Text that was typed before a signal is kept for the next call. A last line without end counts.
  Outcome next(std::string& line) override;

 private:
  int descriptor_;
  std::size_t longest_;
  std::string buffer_;
  std::size_t searched_ = 0;  // bytes of the buffer that hold no line's end
  std::size_t skipped_ = 0;   // bytes of a line that is too long
  bool ended_ = false;
};

}  // namespace megatron
