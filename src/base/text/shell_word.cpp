#include "base/text/shell_word.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace megatron {

std::string shell_word(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("._-/+,:=@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain && !text.empty()) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace megatron
