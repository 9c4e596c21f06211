#include "monitoring/plots/svg.h"

#include "base/text/text.h"

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

}  // namespace megatron
