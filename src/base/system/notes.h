// Lines on standard error, of programs without a Log. Where no reader is left, a line is lost, and nothing else.
#pragma once

#include <string_view>

namespace megatron {

void print_note(std::string_view line) noexcept;
/// The same with "warning: " in front.
void print_warning(std::string_view line) noexcept;

}  // namespace megatron
