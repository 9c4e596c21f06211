#include "plots/svg.h"

#include <fmt/format.h>

#include "text/text.h"

namespace megatron {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\n':
      case '\t': result += ' '; break;
      default: result += c;
    }
  }
  return result;
}

std::string points(const std::vector<std::pair<double, double>>& places) {
  std::string text;
  for (const auto& [x, y] : places) text += fmt::format("{}{:.1f},{:.1f}", text.empty() ? "" : " ", x, y);
  return text;
}

}  // namespace megatron
