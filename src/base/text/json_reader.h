// JsonReader: reads JSON text (RFC 8259) from front to back, without building a tree.
//
// For what is long and simple: a corpus of records of which one string is wanted, a vocabulary of fifty thousand lines.
// Time is linear in the text whatever it holds; memory is one string and a bit a level of nesting. The text must be
// valid UTF-8 (first_invalid_utf8); numbers are checked for form only, except by integer(). Reading past an error is
// not possible: it throws JsonError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace megatron {

/// Not an Error: the caller knows the file and what to do about it.
struct JsonError {
  std::string reason;
  std::size_t at = 0;    ///< byte of the text
  std::string key = {};  ///< in whose value it is, the innermost one; empty outside of objects
};

/// python: what json.dumps writes besides JSON is taken where it is of no interest: NaN, Infinity and -Infinity as
/// values that are skipped, half surrogate pairs in these and in keys (as U+FFFD).
enum class JsonDialect { strict, python };

class JsonReader {
 public:
  explicit JsonReader(std::string_view text, JsonDialect dialect = JsonDialect::strict)
      : text_(text), python_(dialect == JsonDialect::python) {}

  std::size_t position() const { return position_; }
  /// Goes to what comes next, and says which character that is; '\0' at the end.
  char peek();
  /// Takes this character if it comes next.
  bool take(char c);
  /// Takes it, or throws: "expected <what>, found ...".
  void expect(char c, const char* what);
  /// A string that comes next. A view of the text, or of `buffer` if there was something to unescape.
  std::string_view string(std::string& buffer) { return string(buffer, false); }
  /// The same of a key.
  std::string_view key(std::string& buffer) { return string(buffer, python_); }
  /// A whole number without sign, fraction or exponent, below 10^18.
  std::uint64_t integer();
  /// Any value with at most `deepest` objects and arrays inside each other.
  void skip_value(std::size_t deepest = SIZE_MAX);
  /// Throws unless nothing but space is left.
  void expect_end();

 private:
  [[noreturn]] void unexpected(const std::string& expected) const;
  [[noreturn]] void fail_at(std::size_t at, std::string reason) const { throw JsonError{std::move(reason), at}; }
  void skip_string();
  std::size_t plain_end(std::size_t from) const;
  std::string_view string(std::string& buffer, bool takes_halves);
  void unescape(std::string& buffer, bool takes_halves);
  std::uint32_t four_digits();
  void skip_scalar();
  void skip_number();

  std::string_view text_;
  bool python_;
  std::size_t position_ = 0;
};

/// Calls visit(key) for each member of the object that comes next, keys that are there twice too; it must read the
/// value, and has the key until it returns. `what`: what is expected, for messages.
template <class Visit>
void visit_object(JsonReader& reader, const char* what, const Visit& visit) {
  reader.expect('{', what);
  if (reader.take('}')) return;
  std::string buffer;
  do {
    const std::string_view key = reader.key(buffer);
    reader.expect(':', "':' after a key");
    reader.peek();
    try {
      visit(key);
    } catch (JsonError& error) {
      if (error.key.empty()) error.key = key;
      throw;
    }
  } while (reader.take(','));
  reader.expect('}', "',' or '}'");
}

/// Calls visit() for each element of the array that comes next; it must read the element.
template <class Visit>
void visit_array(JsonReader& reader, const char* what, const Visit& visit) {
  reader.expect('[', what);
  if (reader.take(']')) return;
  do {
    reader.peek();
    visit();
  } while (reader.take(','));
  reader.expect(']', "',' or ']'");
}

}  // namespace megatron
