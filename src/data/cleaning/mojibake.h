// Mojibake: UTF-8 that was read in a single-byte encoding and saved again, once or several times. A line is undone if
// its characters are bytes of one encoding, these are UTF-8, and one sequence of them is no good text: see
// neighbours.h. Other sequences, as a letter and a closing quotation mark, are then undone with it. In a line that is
// not damaged as a whole, this is done in its parts. One line at a time; work is bounded by a multiple of its length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace megatron {

/// U+0080 to U+009F as Windows-1252 has them; others as they are.
char32_t without_c1(char32_t c);

class MojibakeRepair {
 public:
  bool spaces = true;  ///< takes a space for a non-breaking one where this completes a sequence
  bool lost = true;    ///< a sequence with bytes replaced by U+FFFD or '?' becomes U+FFFD
  bool mixed = true;   ///< undoes it in parts of a line that is not damaged as a whole

  /// Whether there is a sequence that is no good text. Linear.
  bool looks_damaged(std::u32string_view line) const;
  /// The line after as many rounds as change it, at most 8.
  std::u32string repaired(std::u32string line);
  /// Characters looked at so far, by all calls.
  std::uint64_t work() const { return work_; }

 private:
  /// Characters of a line that are one character in UTF-8.
  struct Sequence {
    std::size_t length = 0;  ///< 0: none is there
    char32_t decoded = 0;
    bool keeps_space = false;  ///< the last character is a space that also separates words
  };
  /// Sequences in a row.
  struct Chain {
    std::size_t begin = 0, end = 0;
    bool certain = false;  ///< one of them is no good text
    std::u32string decoded;
  };

  Sequence unit_at(std::u32string_view line, std::size_t at, std::size_t encoding) const;
  Sequence sequence_at(std::u32string_view line, std::size_t at, std::size_t encoding) const;
  bool is_certain(std::u32string_view line, std::size_t at, const Sequence& sequence) const;
  bool decode_whole(std::u32string_view line, std::u32string& decoded);
  bool decode_parts(std::u32string_view line, std::u32string& decoded);
  Chain chain_at(std::u32string_view line, std::size_t at, std::size_t encoding) const;

  std::uint64_t work_ = 0;
};

}  // namespace megatron
