#include "base/error.h"

namespace megatron {

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

void internal_check(bool condition, const char* what, SourcePlace where) {
  if (condition) [[likely]]
    return;
  fail(ErrorKind::internal, "{} ({}:{}, {}); this is a defect of the program, please report it", what, where.file,
       where.line, where.function);
}

long long exact_division(long long a, long long b, const char* what) {
  if (b <= 0 || a % b != 0) fail(ErrorKind::internal, "{}: {} is not a multiple of {}", what, a, b);
  return a / b;
}

}  // namespace megatron
