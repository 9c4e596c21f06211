// Lines of a stream whose writer may be a person or another program: at any time, and of any length up to 1 GiB, where
// the stream is taken for ended. A signal ends the waiting. A terminal keeps its own line mode, and its own keys.
#pragma once

#include <cstddef>
#include <string>

namespace megatron {

class LineReader {
 public:
  /// Reads from a descriptor that stays the caller's. Lines of more than `longest` bytes are left out.
  explicit LineReader(int descriptor, std::size_t longest = std::size_t{16} << 20);

  enum class Outcome {
    line,         ///< there is one, without its end
    too_long,     ///< there was one
    interrupted,  ///< by a signal
    end,          ///< the stream's end, or a terminal that has gone
  };
  /// Waits for the next line. A signal throws away what was typed on a terminal; text from elsewhere is kept for the
  /// next call. A last line without end counts. Error(filesystem) if there is no reading.
  Outcome next(std::string& line);

 private:
  int descriptor_;
  std::size_t longest_;
  bool terminal_;
  std::string buffer_;
  std::size_t searched_ = 0;  // bytes of the buffer that hold no line's end
  std::size_t skipped_ = 0;   // bytes of a line that is too long
  bool ended_ = false;
};

}  // namespace megatron
