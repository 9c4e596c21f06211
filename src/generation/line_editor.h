// LineEditor: lines that a person types on a terminal, with the usual keys: cursor keys, Home, End, Ctrl-A, E, K, U, W,
// and up and down for earlier lines. It has the terminal to itself only while next() waits. What was typed before that
// is edited like the rest.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "generation/edited_line.h"
#include "generation/key_strokes.h"
#include "generation/line_source.h"
#include "generation/raw_terminal.h"

namespace megatron {

class LineEditor : public LineSource {
 public:
  /// `terminal` stays the caller's. `print` writes to it. `sign` (ASCII) is in front of each line. Lines of more than
  /// `longest` bytes are left out.
  LineEditor(int terminal, std::string sign, std::function<void(const std::string& text)> print,
             std::size_t longest = std::size_t{64} << 20)
      : terminal_(terminal), sign_(std::move(sign)), print_(std::move(print)), longest_(longest) {}

  /// Ctrl-C, or a signal, throws away what was typed. Ctrl-D on an empty line is the end.
  Outcome next(std::string& line) override;

 private:
  /// A line while it is made: where it is in the history, whose size stands for a new one.
  struct Place {
    std::size_t recalled = 0;
    std::string draft = {};  ///< the new line while an earlier one is shown
    bool too_long = false;
  };
  void take_typed_ahead();
  void draw() const;
  void insert(Place& place, std::string_view text);
  void recall(Place& place, std::size_t which);
  void edit(Place& place, Key key);
  Outcome entered(const Place& place, std::string& line);
  Outcome end();

  int terminal_;
  std::string sign_;
  std::function<void(const std::string& text)> print_;
  std::size_t longest_;
  std::string pending_;  // bytes of keys of which nothing is made yet
  bool ended_ = false;
  EditedLine edited_;
  std::vector<std::string> history_;
};

}  // namespace megatron
