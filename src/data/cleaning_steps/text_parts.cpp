#include "data/cleaning_steps/text_parts.h"

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

ComparedPart compared_part_of(const std::string& word) {
  if (word == "paragraph") return ComparedPart::paragraph;
  if (word == "line") return ComparedPart::line;
  verify(word == "document", ErrorKind::configuration, "by '{}': choose one of: document paragraph line", word);
  return ComparedPart::document;
}

std::vector<std::string_view> parts_of_text(std::string_view text, ComparedPart part) {
  if (part == ComparedPart::document) return {text};
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  bool after_blank = false, has_words = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const bool blank = text.substr(at, end - at).find_first_not_of(" \t\r\n") == std::string_view::npos;
    if (!blank && has_words && (part == ComparedPart::line || after_blank)) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    has_words = has_words || !blank;
    after_blank = blank;
    at = end;
  }
  if (begin < text.size()) parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace megatron
