#include "base/text/text.h"

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

namespace {

/// The character of two or three bytes that `text` begins with, if it is one that steers; else 0. These are the
/// controls of C1, the ends of lines and paragraphs, and the marks, embeddings and isolates of directions.
unsigned steering_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F) return byte(1);
  if (byte(0) == 0xD8 && byte(1) == 0x9C) return 0x61C;
  if (byte(0) != 0xE2 || (byte(1) & 0xC0) != 0x80 || (byte(2) & 0xC0) != 0x80) return 0;
  const unsigned code = 0x2000U | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  const bool steers =
      code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return steers ? code : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (const unsigned code = byte < 0x80 ? 0 : steering_character(text.substr(i)); code != 0) {
      result += fmt::format("\\u{:04x}", code);
      i += code < 0x800 ? 1 : 2;
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace megatron
