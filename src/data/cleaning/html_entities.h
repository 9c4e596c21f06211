// HTML's named entities and character references. html_entities.cpp is made by scripts/tables/make_repair_tables.py:
// the names of the HTML standard that end with a semicolon.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace megatron {

struct HtmlEntity {
  std::string_view name;  ///< without '&' and ';'
  std::string_view text;  ///< UTF-8
};
/// Ascending by name.
std::span<const HtmlEntity> html_entities();

struct EntityMatch {
  std::size_t bytes = 0;  ///< with '&' and ';'; 0 if none is there
  std::string text;       ///< UTF-8
};
/// Bytes of the longest entity, with '&' and ';'.
inline constexpr std::size_t kLongestEntity = 33;
/// The entity that `text` begins with: &NAME;, &#NUMBER; or &#xNUMBER;. A name in capitals that the standard does not
/// have (&EACUTE;) is the name of the same letters that it has, the one with the most capitals (&Eacute;).
EntityMatch first_entity(std::string_view text);

}  // namespace megatron
