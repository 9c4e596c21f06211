#include "base/text/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text/utf8.h"

namespace megatron {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Whether a character ends a plain stretch of a string: the string's end, an escape, or a control character, which
/// must be escaped.
bool is_special(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\';
}

}  // namespace

void JsonReader::unexpected(const std::string& expected) const {
  if (position_ >= text_.size()) fail_at(position_, fmt::format("expected {}, found the end", expected));
  if (text_.substr(position_, 4) == "null") fail_at(position_, fmt::format("expected {}, found null", expected));
  const char found = text_[position_];
  const auto code = static_cast<unsigned char>(found);
  fail_at(position_, found > ' ' && found <= '~' ? fmt::format("expected {}, found '{}'", expected, found)
                                                 : fmt::format("expected {}, found byte 0x{:02x}", expected, code));
}

char JsonReader::peek() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
    ++position_;
  }
  return '\0';
}

bool JsonReader::take(char c) {
  if (peek() != c || position_ >= text_.size()) return false;
  ++position_;
  return true;
}

void JsonReader::expect(char c, const char* what) {
  if (!take(c)) unexpected(what);
}

void JsonReader::expect_end() {
  peek();
  if (position_ < text_.size()) unexpected("nothing more");
}

/// Where the plain stretch that begins at `from` ends; text_.size() if the text ends first.
std::size_t JsonReader::plain_end(std::size_t from) const {
  constexpr std::size_t kBlock = 32;  // compilers turn this loop into two or three vector instructions
  for (; from + kBlock <= text_.size(); from += kBlock) {
    const char* block = text_.data() + from;
    unsigned char special = 0;
    for (std::size_t i = 0; i < kBlock; ++i) special |= static_cast<unsigned char>(is_special(block[i]));
    if (special != 0) break;
  }
  while (from < text_.size() && !is_special(text_[from])) ++from;
  return from;
}

std::string_view JsonReader::string(std::string& buffer, bool takes_halves) {
  expect('"', "a string");
  const std::size_t begin = position_;
  position_ = plain_end(begin);
  if (position_ < text_.size() && text_[position_] == '"') return text_.substr(begin, position_++ - begin);
  buffer.assign(text_, begin, position_ - begin);
  unescape(buffer, takes_halves);
  return buffer;
}

/// Appends the rest of a string, which continues with an escape or an error. Half a surrogate pair is U+FFFD, or an
/// error.
void JsonReader::unescape(std::string& buffer, bool takes_halves) {
  while (true) {
    if (position_ >= text_.size()) fail_at(position_, "a string without its closing quote");
    const char special = text_[position_];
    if (special == '"') break;
    if (special != '\\') {
      fail_at(position_, fmt::format("control character U+{:04X} in a string: it must be escaped",
                                     static_cast<unsigned>(static_cast<unsigned char>(special))));
    }
    const std::size_t escape = position_++;
    const char kind = position_ < text_.size() ? text_[position_++] : '\0';
    switch (kind) {
      case '"':
      case '\\':
      case '/': buffer.push_back(kind); break;
      case 'b': buffer.push_back('\b'); break;
      case 'f': buffer.push_back('\f'); break;
      case 'n': buffer.push_back('\n'); break;
      case 'r': buffer.push_back('\r'); break;
      case 't': buffer.push_back('\t'); break;
      case 'u': {
        std::uint32_t code = four_digits();
        if (code >= 0xD800 && code <= 0xDBFF && text_.substr(position_, 2) == "\\u") {
          const std::size_t second = position_;
          position_ += 2;
          const std::uint32_t low = four_digits();
          if (low >= 0xDC00 && low <= 0xDFFF) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          } else {
            position_ = second;  // another character, or another half
          }
        }
        if (code >= 0xD800 && code <= 0xDFFF) {
          if (!takes_halves) fail_at(escape, "half of a surrogate pair, which is no character");
          code = 0xFFFD;
        }
        append_utf8(buffer, code);
        break;
      }
      default: fail_at(escape, "an escape that JSON does not have (\\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)");
    }
    const std::size_t begin = position_;
    position_ = plain_end(begin);
    buffer.append(text_, begin, position_ - begin);
  }
  ++position_;
}

std::uint32_t JsonReader::four_digits() {
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++position_) {
    const char c = position_ < text_.size() ? text_[position_] : '\0';
    std::uint32_t digit = 0;
    if (is_digit(c)) {
      digit = static_cast<std::uint32_t>(c - '0');
    } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
      digit = static_cast<std::uint32_t>((c | 0x20) - 'a') + 10;
    } else {
      unexpected("four hexadecimal digits after \\u");
    }
    code = code << 4 | digit;
  }
  return code;
}

std::uint64_t JsonReader::integer() {
  peek();
  const std::size_t begin = position_;
  std::uint64_t value = 0;
  while (position_ < text_.size() && is_digit(text_[position_])) {
    if (position_ - begin == 18) fail_at(begin, "a number that is too large");
    value = 10 * value + static_cast<std::uint64_t>(text_[position_++] - '0');
  }
  const char next = position_ < text_.size() ? text_[position_] : '\0';
  if (position_ == begin || next == '.' || next == 'e' || next == 'E') unexpected("a whole number");
  if (text_[begin] == '0' && position_ > begin + 1) fail_at(begin, "a number with leading zeros");
  return value;
}

void JsonReader::skip_number() {
  const auto digits = [this] {
    const std::size_t begin = position_;
    while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
    if (position_ == begin) unexpected("a digit");
  };
  const auto next_is = [this](char c) { return position_ < text_.size() && text_[position_] == c; };
  if (next_is('-')) ++position_;
  const std::size_t begin = position_;
  digits();
  if (text_[begin] == '0' && position_ > begin + 1) fail_at(begin, "a number with leading zeros");
  if (next_is('.')) {
    ++position_;
    digits();
  }
  if (next_is('e') || next_is('E')) {
    ++position_;
    if (next_is('+') || next_is('-')) ++position_;
    digits();
  }
}

void JsonReader::skip_string() {
  std::string unused;
  string(unused, python_);
}

void JsonReader::skip_scalar() {
  const char c = peek();
  if (c == '"') return skip_string();
  const auto take_word = [&](std::string_view word) {
    const bool found = text_.substr(position_, word.size()) == word;
    position_ += found ? word.size() : 0;
    return found;
  };
  if (python_ && (take_word("NaN") || take_word("Infinity") || take_word("-Infinity"))) return;
  if (c == '-' || is_digit(c)) return skip_number();
  if (take_word("true") || take_word("false") || take_word("null")) return;
  unexpected("a value");
}

void JsonReader::skip_value(std::size_t deepest) {
  std::vector<bool> objects;  // for each open value, whether it is an object: no recursion, so no depth is too deep
  const auto key = [this] {
    skip_string();
    expect(':', "':' after a key");
  };
  do {
    // A value begins here.
    const char c = peek();
    if (c == '{' || c == '[') {
      ++position_;
      const bool object = c == '{';
      if (!take(object ? '}' : ']')) {
        if (objects.size() == deepest) fail_at(position_ - 1, fmt::format("more than {} levels", deepest));
        objects.push_back(object);
        if (object) key();
        continue;
      }
    } else {
      skip_scalar();
    }
    // It is complete, and with it perhaps those around it.
    while (!objects.empty()) {
      if (take(',')) {
        if (objects.back()) key();
        break;
      }
      expect(objects.back() ? '}' : ']', objects.back() ? "',' or '}'" : "',' or ']'");
      objects.pop_back();
    }
  } while (!objects.empty());
}

}  // namespace megatron
