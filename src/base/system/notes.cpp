#include "base/system/notes.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "base/text/text.h"

namespace megatron {

void print_note(std::string_view line) noexcept try {
  const std::string text = printable(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);  // not fmt::print, which throws if it cannot
} catch (const std::exception&) {                    // no memory for a line
}

void print_warning(std::string_view line) noexcept try {
  print_note(fmt::format("warning: {}", line));
} catch (const std::exception&) {
}

}  // namespace megatron
