#include "config/parse/text_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/utf8.h"

namespace megatron {
namespace {

TextProblem problem_at(std::string_view text, std::size_t offset, std::string message) {
  const std::string_view before = text.substr(0, offset);
  const auto newline = before.rfind('\n');
  return {static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1,
          newline == std::string_view::npos ? offset + 1 : offset - newline, std::move(message)};
}

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

/// Walks over TOML text outside strings and comments, counting open brackets and dots within one key or value.
class NestingScan {
 public:
  explicit NestingScan(std::string_view text) : text_(text) {}

  /// Place of the first character beyond ASCII that is neither in a comment nor in a string of one line; known after
  /// run().
  std::optional<std::size_t> first_beyond_ascii() const { return beyond_ascii_; }

  std::optional<TextProblem> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if ((c == '"' || c == '\'') && begins_word()) {
        skip_string(c);
      } else {
        note(at_);
        count(c);
        if (depth_ > kMaxNesting)
          return problem_at(text_, at_, fmt::format("more than {} nested brackets", kMaxNesting));
        if (dots_ >= kMaxNesting) {
          return problem_at(text_, at_, fmt::format("a dotted key of more than {} parts", kMaxNesting));
        }
        ++at_;
      }
    }
    return {};
  }

 private:
  /// A quote within a word opens no string: the parser reads on to the word's end.
  bool begins_word() const {
    return at_ == 0 || std::string_view(" \t\r\n=[{,.").find(text_[at_ - 1]) != std::string_view::npos;
  }

  void note(std::size_t at) {
    if (!beyond_ascii_ && !is_ascii(text_[at])) beyond_ascii_ = at;
  }

  void count(char c) {
    if (c == '[' || c == '{') ++depth_;
    if ((c == ']' || c == '}') && depth_ > 0) --depth_;
    if (c == '.') ++dots_;
    if (std::string_view("[]{}=,\n").find(c) != std::string_view::npos) dots_ = 0;
  }

  /// Moves past the string that begins here. An unfinished one ends with its line (or the text): the parser reports it.
  void skip_string(char quote) {
    const std::string triple(3, quote);
    if (text_.substr(at_, 3) == triple) {
      std::size_t end = at_ + 3;
      while (end < text_.size() && text_.substr(end, 3) != triple) {
        note(end);
        if (quote == '"' && text_[end] == '\\' && end + 1 < text_.size()) note(++end);
        ++end;
      }
      at_ = std::min(end + 3, text_.size());
      return;
    }
    ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<std::size_t> beyond_ascii_;
  int depth_ = 0, dots_ = 0;
};

}  // namespace

std::optional<TextProblem> find_stray_character(std::string_view text) {
  NestingScan scan(text);
  scan.run();
  if (!scan.first_beyond_ascii()) return {};
  return problem_at(text, *scan.first_beyond_ascii(),
                    "a character that is not ASCII belongs into quotes \"...\" on one line, or into a comment");
}

std::optional<TextProblem> check_text(std::string_view text) {
  if (text.size() > kMaxInputBytes) {
    return TextProblem{1, 1, fmt::format("more than {} bytes; this is not an input file", kMaxInputBytes)};
  }
  if (text.starts_with("\xEF\xBB\xBF") || text.starts_with("\xFE\xFF") || text.starts_with("\xFF\xFE")) {
    return TextProblem{1, 1, "the file begins with a byte-order mark; save it as UTF-8 without one"};
  }
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return problem_at(text, nul, "a NUL byte; this is not a text file, or it is UTF-16 (save it as UTF-8)");
  }
  if (const std::size_t offset = first_invalid_utf8(text); offset < text.size()) {
    return problem_at(text, offset,
                      fmt::format("byte 0x{:02X} is not valid UTF-8; save the file as UTF-8",
                                  static_cast<unsigned char>(text[offset])));
  }
  return NestingScan(text).run();
}

}  // namespace megatron
