// Forms of a text in which duplicates are looked for. `exact duplicates` compare the white_space form, near ones the
// words form: what differs only in case, accents, numbers and punctuation is the same there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megatron {

enum class TextForm : std::uint8_t {
  as_is,
  white_space,  ///< runs of white space are one space, none at the ends
  /// Letters in lower case and without their non-spacing marks (form D); each run of digits, of any script, is one 0;
  /// all that is neither (punctuation, white space, bytes that are no UTF-8) is one space between words; ideographs are
  /// words by themselves.
  words,
};

/// `text` itself for as_is, else a view of `buffer`, which is overwritten.
std::string_view text_in_form(std::string_view text, TextForm form, std::string& buffer);

/// 128 bits of XXH3 that stand for a text: two that differ have the same ones with a probability of 2^-128.
struct TextHash {
  std::uint64_t low = 0, high = 0;
  bool operator==(const TextHash&) const = default;
};
TextHash hash_text(std::string_view text);

}  // namespace megatron
