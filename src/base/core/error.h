// Errors that a user can act on, and the exit code each of them ends the program with.
//
// Rules: messages say what is wrong, where, and what to do about it. `verify` is for the users' and the environment's
// mistakes and is always on. `internal_check` is for our own. Only main catches an Error (and the places that
// can really continue without: fallback to an older checkpoint, --skip-bad). Destructors never throw.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

namespace megatron {

/// The value is the process exit code.
enum class ErrorKind : int {
  internal = 1,
  configuration = 2,
  data = 3,
  checkpoint = 4,
  numerics = 5,
  communication = 6,
  filesystem = 7,
};

inline constexpr int kExitStoppedEarly = 75;  ///< EX_TEMPFAIL: stopped on request with a good checkpoint; requeue me

/// One word for the category, as printed in front of the message: "configuration", "data", ...
const char* name_of(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

/// Called where an internal error is made, while the stack that led there still stands; nullptr: nothing is.
void set_internal_error_hook(void (*hook)());

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(kind) with the formatted message unless `condition` holds. The arguments are formatted only on failure.
template <class... Args>
void verify(bool condition, ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(kind, format, std::forward<Args>(args)...);
}

/// Where in the source a call stands: std::source_location, for compilers that lack it too (Clang before 16).
struct SourcePlace {
  const char *file = "", *function = "";
  int line = 0;

  static constexpr SourcePlace current(const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(),
                                       int line = __builtin_LINE()) {
    return {file, function, line};
  }
};

/// The promise of an internal_check(), and where that stands.
struct Promise {
  const char* what;
  SourcePlace where;
  constexpr Promise(const char* text, SourcePlace place = SourcePlace::current()) : what(text), where(place) {}
};

/// A value as the error shows it: by its to_string() or name_of() if it has one of them.
template <class T>
std::string shown(const T& value) {
  if constexpr (requires { value.to_string(); }) {
    return value.to_string();
  } else if constexpr (requires { name_of(value); }) {
    return name_of(value);
  } else {
    return fmt::format("{}", value);
  }
}

[[noreturn]] void fail_check(const Promise& promise, std::initializer_list<std::string> values);

/// A broken promise inside the program itself: names the place and shows `values`, which the condition compares; ends
/// with exit code 1. Values are formatted only on failure, but evaluated always.
template <class... Values>
void internal_check(bool condition, Promise promise, const Values&... values) {
  if (!condition) [[unlikely]]
    fail_check(promise, {shown(values)...});
}

/// a / b where b must divide a; `what` names the division in the error.
long long exact_division(long long a, long long b, const char* what);

}  // namespace megatron
