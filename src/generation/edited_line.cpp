#include "generation/edited_line.h"

#include <clocale>
#include <cwchar>

#include "text/text.h"
#include "text/utf8.h"

namespace megatron {

namespace {

/// Columns of characters by the C library's table, whatever locale the program has.
class Widths {
 public:
  Widths() : own_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (own_ != nullptr) previous_ = ::uselocale(own_);
  }
  ~Widths() {
    if (own_ == nullptr) return;
    ::uselocale(previous_);
    ::freelocale(own_);
  }
  Widths(const Widths&) = delete;
  Widths& operator=(const Widths&) = delete;

  /// -1: not printable.
  int of(std::uint32_t code_point) const {
    if (own_ == nullptr) return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0) ? -1 : 1;
    return ::wcwidth(static_cast<wchar_t>(code_point));
  }

 private:
  locale_t own_ = nullptr, previous_ = nullptr;
};

/// A character as it is shown.
struct Shown {
  std::string text;
  int columns = 1;
};

Shown shown(std::string_view character, const Widths& widths) {
  if (character == "\t") return {" ", 1};
  const CodePoint point = first_code_point(character);
  const int columns = point.bytes == 0 ? -1 : widths.of(point.value);
  const bool steers = printable(character) != character;  // the terminal: controls, directions of text
  return columns < 0 || steers ? Shown{"\xef\xbf\xbd", 1} : Shown{std::string(character), columns};
}

bool is_space(char c) {
  return c == ' ' || c == '\t';
}

}  // namespace

std::size_t EditedLine::after(std::size_t at) const {
  const CodePoint point = first_code_point(std::string_view(text_).substr(at, 4));
  return at + (point.bytes == 0 ? 1 : point.bytes);
}

std::size_t EditedLine::before(std::size_t at) const {
  for (std::size_t bytes = 4; bytes > 1; --bytes) {
    if (bytes <= at && after(at - bytes) == at) return at - bytes;
  }
  return at - 1;
}

void EditedLine::set(std::string text) {
  text_ = std::move(text);
  end();
}

void EditedLine::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void EditedLine::left() {
  if (cursor_ > 0) cursor_ = before(cursor_);
}

void EditedLine::right() {
  if (cursor_ < text_.size()) cursor_ = after(cursor_);
}

void EditedLine::word_left() {
  while (cursor_ > 0 && is_space(text_[cursor_ - 1])) --cursor_;
  while (cursor_ > 0 && !is_space(text_[cursor_ - 1])) --cursor_;
}

void EditedLine::word_right() {
  while (cursor_ < text_.size() && is_space(text_[cursor_])) ++cursor_;
  while (cursor_ < text_.size() && !is_space(text_[cursor_])) ++cursor_;
}

void EditedLine::erase_left() {
  const std::size_t end = cursor_;
  left();
  text_.erase(cursor_, end - cursor_);
}

void EditedLine::erase_right() {
  if (cursor_ < text_.size()) text_.erase(cursor_, after(cursor_) - cursor_);
}

void EditedLine::erase_word() {
  const std::size_t end = cursor_;
  word_left();
  text_.erase(cursor_, end - cursor_);
}

void EditedLine::erase_to_begin() {
  text_.erase(0, cursor_);
  cursor_ = 0;
}

void EditedLine::erase_to_end() {
  text_.erase(cursor_);
}

EditedLine::View EditedLine::view(int columns) const {
  const Widths widths;
  const auto character = [&](std::size_t from, std::size_t to) {
    return shown(std::string_view(text_).substr(from, to - from), widths);
  };
  View view;
  std::size_t first = cursor_;
  while (first > 0) {
    const std::size_t next = before(first);
    const int width = character(next, first).columns;
    if (view.cursor + width > columns) break;
    view.cursor += width;
    first = next;
  }
  int used = 0;
  for (std::size_t at = first; at < text_.size();) {
    const std::size_t next = after(at);
    const Shown one = character(at, next);
    if (used + one.columns > columns) break;
    used += one.columns;
    view.text += one.text;
    at = next;
  }
  return view;
}

}  // namespace megatron
