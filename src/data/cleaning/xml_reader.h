// XmlReader: XML read as a stream of tags and the text between them, in bounded memory. Knows the five predefined
// entities and references by number; a document type, which could define others, is refused. Tags must nest. Everything
// else is ErrorKind::data with byte and line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

class XmlReader {
 public:
  /// Appends the next part of the document; false, and nothing, at its end.
  using More = std::function<bool(std::string&)>;
  enum class Event : std::uint8_t { start, end, end_of_file };

  XmlReader(std::string name, More more);

  /// Reads to the next tag. The text before it is appended to `text`, if that is given, of at most `most_bytes`. An
  /// empty tag is a start and an end.
  Event next(std::string* text = nullptr, std::size_t most_bytes = SIZE_MAX);

  /// Name of the last tag.
  const std::string& tag() const { return tag_; }
  /// Value in the last start; empty if it has no such attribute.
  std::string_view attribute(std::string_view name) const;
  /// Open tags.
  std::size_t depth() const { return open_.size(); }

  std::uint64_t position() const { return window_begin_ + at_; }
  /// Throws ErrorKind::data with name, byte and line.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  bool has(std::size_t bytes);
  std::size_t find(std::string_view end, std::size_t most);
  void advance(std::size_t bytes);
  bool starts_with(std::string_view text);
  void read_text(std::string* text, std::size_t most_bytes);
  void read_entity(std::string& text);
  void append(std::string_view part, std::string* text, std::size_t most_bytes) const;
  bool skip_non_tag(std::string* text, std::size_t most_bytes);
  Event read_tag();
  void read_attributes(std::string_view tag);

  std::string name_;
  More more_;
  std::string window_;
  std::size_t at_ = 0;
  std::uint64_t window_begin_ = 0;
  std::uint64_t line_ = 1;
  bool ended_ = false, empty_tag_ = false;
  std::string tag_;
  std::vector<std::pair<std::string, std::string>> attributes_;
  std::vector<std::string> open_;
};

}  // namespace megatron
