// BertCharacters: what BERT does to a text before it looks for words: drop control characters, put spaces around
// ideographs, strip marks from letters, lower-case; and which characters separate words or are words by themselves.
// The tables are those of Hugging Face's tokenizers (scripts/tables/make_bert_tables.py), whatever Unicode these
// follow. Immutable, one for the process. Must not know vocabularies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

namespace megatron {

/// Bits of a character's class.
enum BertClass : std::uint8_t {
  kBertControl = 1,      ///< dropped where texts are cleaned; U+0000 and U+FFFD among them
  kBertSpace = 2,        ///< between words
  kBertPunctuation = 4,  ///< a word by itself
  kBertMark = 8,         ///< dropped where accents are stripped
  kBertIdeograph = 16,   ///< a word by itself, if ideographs are separated
};

/// Code points [first, last] that have these bits.
struct BertRange {
  std::uint32_t first, last;
  std::uint8_t bits;
};
/// Every step-th code point of [first, last] and its lower case, which is it + difference.
struct LowerCaseRange {
  std::uint32_t first, last, step;
  std::int32_t difference;
};

/// Ascending; from bert_tables.cpp.
std::span<const BertRange> bert_ranges();
std::span<const LowerCaseRange> lower_case_ranges();

class BertCharacters {
 public:
  static const BertCharacters& instance();

  /// At most 0x10FFFF.
  std::uint8_t of(std::uint32_t code_point) const { return bits_[code_point]; }
  /// Calls use(c) for each character of the lower case.
  template <class Use>
  void lower(std::uint32_t c, const Use& use) const {
    if (c < 0x80) return use(c - 'A' < 26 ? c + 32 : c);
    if (c == kDottedI) {  // the only one of two characters
      use('i');
      return use(0x307);
    }
    const auto found = lower_.find(c);
    use(found == lower_.end() ? c : found->second);
  }

 private:
  static constexpr std::uint32_t kDottedI = 0x130;

  BertCharacters();
  std::unique_ptr<std::uint8_t[]> bits_;
  std::unordered_map<std::uint32_t, std::uint32_t> lower_;
};

}  // namespace megatron
