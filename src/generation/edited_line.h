// EditedLine: a line while it is typed: its text, the place of the cursor, and the part that fits on a terminal. Knows
// neither keys nor terminals. A cursor is in front of a whole character; bytes that are no UTF-8 are characters of
// their own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace megatron {

class EditedLine {
 public:
  const std::string& text() const { return text_; }
  void set(std::string text);  ///< the cursor is at its end
  void insert(std::string_view text);

  void left();
  void right();
  void word_left();
  void word_right();
  void home() { cursor_ = 0; }
  void end() { cursor_ = text_.size(); }

  void erase_left();   ///< the character in front of the cursor
  void erase_right();  ///< the one after it
  void erase_word();   ///< the word in front of it, with the spaces between
  void erase_to_begin();
  void erase_to_end();

  struct View {
    std::string text;  ///< printable
    int cursor = 0;    ///< columns in front of it; at most `columns`
  };
  /// The part that `columns` columns show: the beginning, or else the text in front of the cursor.
  View view(int columns) const;

 private:
  std::size_t before(std::size_t at) const;  // beginning of the character that ends there
  std::size_t after(std::size_t at) const;

  std::string text_;
  std::size_t cursor_ = 0;
};

}  // namespace megatron
