// Where typed prompts and requests come from, a line at a time: a pipe (LineReader) or a terminal (LineEditor).
#pragma once

#include <string>

namespace megatron {

class LineSource {
 public:
  virtual ~LineSource() = default;

  enum class Outcome {
    line,         ///< there is one, without its end
    too_long,     ///< there was one
    interrupted,  ///< by a signal or by Ctrl-C
    end,          ///< the stream's end
  };
  /// Waits for the next line. Error(filesystem) if there is no reading.
  virtual Outcome next(std::string& line) = 0;
};

}  // namespace megatron
