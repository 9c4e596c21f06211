#include "text/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatron {

std::string wrapped(const std::string& text) {
  constexpr std::size_t width = 100, indent = 10;
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (line.size() > width && line.rfind(' ', width) > indent && line.rfind(' ', width) != std::string::npos) {
      const std::size_t space = line.rfind(' ', width);
      result += line.substr(0, space) + '\n';
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    result += line;
    if (end < text.size()) result += '\n';
    at = end + 1;
  }
  return result;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace megatron
