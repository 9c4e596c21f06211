// Conditions on the text of an input file before a TOML parser sees it: bounded size and nesting, clean UTF-8, nothing
// but ASCII where TOML has nothing else. The parser itself (toml++ 3.3) recurses per nesting level and per
// dotted-key part, and asks of some characters whether they are white space without having an answer, so that hostile
// or damaged files would crash it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megatron {

inline constexpr std::size_t kMaxInputBytes = 1 << 20;
inline constexpr int kMaxNesting = 16;  ///< brackets within brackets, and parts of a dotted key

struct TextProblem {
  std::size_t line = 1, column = 1;  ///< counted from 1; columns in bytes
  std::string message;
};

/// The first problem that makes the text unfit for parsing, or nothing.
std::optional<TextProblem> check_text(std::string_view text);

/// The first character beyond ASCII that is neither in a comment nor in a string of one line, or nothing. (In strings
/// of several lines TOML allows it, but after a backslash the parser does not survive it.) For text that check_text
/// accepts.
std::optional<TextProblem> find_stray_character(std::string_view text);

}  // namespace megatron
