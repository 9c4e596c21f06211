// PartBorders: where the parts of a text begin, followed while an Encoder changes the text, so that each token finds
// its part. A text of one part has no borders, and following them costs nothing. Where several bytes become one unit
// (a composed character, a run of spaces), a border inside moves in front of it: the unit belongs to the later part.
// Internal to src/data/tokenizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace megatron {

class PartBorders {
 public:
  /// A text of one part.
  explicit PartBorders(SpecialTokens special) : special_(special) {}
  /// The joined texts of `parts`, which must live as long.
  explicit PartBorders(std::span<const TextPart> parts);

  /// The borders of `size` bytes from `begin` on, as a text by themselves.
  PartBorders within(std::size_t begin, std::size_t size) const;

  /// The part of a byte; of one after the end, the last part.
  std::uint32_t part_at(std::size_t byte) const { return borders_.empty() ? first_ : found_part(byte); }
  /// Whether special tokens may be found in all parts of these bytes.
  bool special(std::size_t begin, std::size_t end) const;

  /// The text loses its first bytes.
  void remove_front(std::size_t bytes) {
    for (Border& border : borders_) border.at -= std::min(border.at, bytes);
  }

  /// The text loses what is after its first bytes.
  void remove_after(std::size_t bytes) {
    for (auto border = borders_.rbegin(); border != borders_.rend() && border->at > bytes; ++border) border->at = bytes;
  }

  /// For a unit of the text whose last byte is `last` and which begins at `to` in the new text: moves the borders that
  /// no earlier unit has moved. Units come in their order; end_moves() after the last one.
  void move(std::size_t last, std::size_t to) {
    while (moved_ < borders_.size() && borders_[moved_].at <= last) borders_[moved_++].at = to;
  }
  void end_moves(std::size_t size) {
    move(std::string_view::npos, size);
    moved_ = 0;
  }

  /// Follows a step that made `made` of `text`, character by character or with those that marks join: what it makes of
  /// the text in front of a border tells where the border lies now. make(part, buffer) does the step for a part of the
  /// text.
  template <class Make>
  void follow(std::string_view text, std::string_view made, const Make& make) {
    std::string buffer;
    std::size_t from = 0, to = 0;  // where a character begins that joins none before it, and its place in `made`
    for (Border& border : borders_) {
      const std::size_t start = begin_before(text, from, border.at);
      to = std::min(to + make(text.substr(from, start - from), buffer).size(), made.size());
      from = start;
      const std::string_view before = make(text.substr(from, border.at - from), buffer), rest = made.substr(to);
      std::size_t same = 0;
      while (same < before.size() && same < rest.size() && before[same] == rest[same]) ++same;
      border.at = to + same;
    }
  }

 private:
  struct Border {
    std::size_t at;
    std::uint32_t part;  // that begins there
  };
  std::vector<Border>::const_iterator first_after(std::size_t byte) const;
  std::uint32_t found_part(std::size_t byte) const;
  /// The last place in front of `border` where a character begins that joins none before it; `from` if there is none.
  static std::size_t begin_before(std::string_view text, std::size_t from, std::size_t border);

  std::span<const TextPart> parts_;
  SpecialTokens special_ = SpecialTokens::text;  // without parts
  std::uint32_t first_ = 0;                      // the part in front of the first border
  std::vector<Border> borders_;
  std::size_t moved_ = 0;
};

/// Where an Encoder puts its tokens.
struct TokenOutput {
  std::vector<std::int32_t>& ids;
  std::vector<std::uint32_t>* part_of;  ///< nullptr: of no interest

  void add(std::int32_t id, std::uint32_t part) {
    ids.push_back(id);
    if (part_of != nullptr) part_of->push_back(part);
  }
};

}  // namespace megatron
