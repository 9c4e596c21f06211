#include "base/core/error.h"

#include <fmt/ranges.h>

#include <atomic>

namespace megatron {

namespace {
std::atomic<void (*)()> internal_error_hook{nullptr};
}

void set_internal_error_hook(void (*hook)()) {
  internal_error_hook = hook;
}

Error::Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {
  if (kind != ErrorKind::internal) return;
  if (auto* const hook = internal_error_hook.load()) hook();
}

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal: return "internal";
    case ErrorKind::configuration: return "configuration";
    case ErrorKind::data: return "data";
    case ErrorKind::checkpoint: return "checkpoint";
    case ErrorKind::numerics: return "numerics";
    case ErrorKind::communication: return "communication";
    case ErrorKind::filesystem: return "filesystem";
  }
  return "unknown";
}

void fail_check(const Promise& promise, std::initializer_list<std::string> values) {
  const auto& [what, where] = promise;
  fail(ErrorKind::internal, "{}{}{} ({}:{}, {}); this is a defect of the program, please report it", what,
       values.size() > 0 ? ": " : "", fmt::join(values, ", "), where.file, where.line, where.function);
}

long long exact_division(long long a, long long b, const char* what) {
  if (b <= 0 || a % b != 0) fail(ErrorKind::internal, "{}: {} is not a multiple of {}", what, a, b);
  return a / b;
}

}  // namespace megatron
