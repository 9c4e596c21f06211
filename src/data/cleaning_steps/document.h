// Document: one line of a corpus, of which a few members are read and perhaps replaced; all else stays byte for byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// JSON nested deeper is refused: readers of the result would not survive it.
inline constexpr std::size_t kDeepestJson = 512;

/// A member that a step reads.
struct MemberName {
  std::string name;
  bool required = true;  ///< a document without it is bad
};

class Document {
 public:
  explicit Document(std::vector<MemberName> members) : members_(std::move(members)), values_(members_.size()) {}

  /// Takes a line that holds a JSON object; views of it are kept until the next one. Throws BadDocument
  /// (data/preprocess/json_text.h) for what is no such object, nested deeper than kDeepestJson, and a member that is
  /// required and missing, no string, or there twice.
  void read_json(std::string_view line);
  /// Takes a line of a list, which is the value of the first member.
  void read_plain(std::string_view line);

  std::string_view line() const { return line_; }  ///< as it was read
  bool has(std::size_t member) const { return values_[member].found; }
  std::string_view value(std::size_t member) const;  ///< as it is now; empty if the document has none
  void replace(std::size_t member, std::string text);
  /// The first member's value as it was read, or the line where none is read: for examples.
  std::string_view shown() const { return !values_.empty() && values_[0].found ? values_[0].text : line_; }
  /// Appends the line as it is now, with its end.
  void append_to(std::string& lines) const;

 private:
  struct Value {
    bool found = false, replaced = false;
    std::size_t begin = 0, end = 0;  // in the line, with the quotes
    std::string_view text;
    std::string buffer, replacement;
  };
  std::vector<MemberName> members_;
  std::vector<Value> values_;
  std::string_view line_;
  bool plain_ = false;
};

/// A text as a JSON string, quotes included. Characters that need no escape stay as they are.
void append_json_string(std::string& json, std::string_view text);

}  // namespace megatron
