// Explains errors of the operating system: what it says was wrong, and what to do about it.
#pragma once

#include <string>

namespace megatron {

/// "; free some space ...": what to do about an errno, or nothing if that cannot be told.
const char* advice_for(int error);
/// "No space left on device; free some space ...": an errno, and what to do about it, if that can be told.
std::string errno_text(int error);
/// Throws Error(filesystem): "cannot create PATH: ", and the text of the current errno.
[[noreturn]] void fail_with_errno(const std::string& action, const std::string& path);

}  // namespace megatron
