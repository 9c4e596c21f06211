// What the text of an input file must satisfy before a TOML parser sees it: bounded size and nesting, clean UTF-8. The
// parser itself recurses per nesting level and per dotted-key part, so that hostile or damaged files would crash it.
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

/// The offset of the first byte that is not part of well-formed UTF-8, or nothing.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace megatron
