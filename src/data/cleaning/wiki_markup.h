// Wiki text in two passes that wiki_text.cpp builds on: tags are taken out, and brackets find their partners. Both are
// linear in the text, whatever is left open in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Before a character that is text, whatever it means in wiki text.
inline constexpr char kLiteral = '\x01';

/// The text without comments, HTML tags and elements that hold no prose (references, formulas, galleries). What
/// <nowiki> and <pre> hold is marked by kLiteral. Control characters are dropped. Adds the bytes looked at to `work`.
std::string without_tags(std::string_view wiki, std::uint64_t& work);

enum class BracketKind : std::uint8_t { template_, table, link, external };

/// A pair of brackets, [begin, begin + width) and [end, end + end_width).
struct Bracket {
  BracketKind kind = BracketKind::link;
  bool closed = false;
  std::uint8_t width = 0, end_width = 0;
  std::size_t begin = 0, end = 0;  ///< end: of closed ones only
};
/// All opening brackets of a text from without_tags(), ascending. Closed ones nest.
std::vector<Bracket> brackets_of(std::string_view text, std::uint64_t& work);

}  // namespace megatron
