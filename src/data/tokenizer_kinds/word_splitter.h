// WordSplitter: the words of a part of a text, as BERT's normalizer and pre-tokenizer make them. Holds memory that is
// used again; not thread-safe. Internal to src/data/tokenizer.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/utf8.h"
#include "data/tokenizer_kinds/word_piece_vocabulary.h"
#include "data/unicode/bert_characters.h"
#include "data/unicode/normalization.h"

namespace megatron {

class WordSplitter {
 public:
  explicit WordSplitter(const WordPieceVocabulary& rules) : rules_(rules) {}

  /// Calls use(word) for each word; an empty one stands for a word of more than rules.longest_word characters.
  template <class Use>
  void split(std::string_view text, const Use& use) {
    for (std::size_t at = 0; at < text.size();) {
      CodePoint c = first_code_point(text.substr(at, 4));
      if (c.bytes == 0) c = {kReplacement, 1};
      at += c.bytes;
      next_end_ = at;
      const std::uint8_t bits = characters_.of(c.value);
      if (rules_.clean && (bits & kBertControl) != 0) continue;
      if (rules_.ideographs && (bits & kBertIdeograph) != 0) {
        space(use);
        normalize(c.value, use);
        space(use);
      } else {
        normalize(c.value, use);
      }
    }
    space(use);
  }

  /// While a word is used: where in the text its first `bytes` bytes end; of an empty word, where the word ends.
  std::size_t end_in_text(std::size_t bytes) const { return bytes == 0 ? word_end_ : ends_[bytes - 1]; }

 private:
  static constexpr std::uint32_t kReplacement = 0xFFFD;

  template <class Use>
  void space(const Use& use) {
    flush_marks(use);
    end_word(use);
  }
  template <class Use>
  void normalize(std::uint32_t c, const Use& use) {
    if (!rules_.strip_accents) {
      end_ = next_end_;
      return lower(c, use);
    }
    decomposed_.clear();
    append_decomposition(c, decomposed_);
    for (const std::uint32_t part : decomposed_) {
      const std::uint8_t order = combining_class(part);
      if (order == 0) flush_marks(use);
      end_ = next_end_;
      if ((characters_.of(part) & kBertMark) != 0) continue;
      if (order == 0) {
        lower(part, use);
      } else {
        marks_.push_back(part);
      }
    }
  }
  /// Marks that stay: those behind one character are put in order.
  template <class Use>
  void flush_marks(const Use& use) {
    if (marks_.empty()) return;
    std::stable_sort(marks_.begin(), marks_.end(),
                     [](std::uint32_t a, std::uint32_t b) { return combining_class(a) < combining_class(b); });
    for (const std::uint32_t mark : marks_) lower(mark, use);
    marks_.clear();
  }
  template <class Use>
  void lower(std::uint32_t c, const Use& use) {
    if (!rules_.lower_case) return add(c, use);
    characters_.lower(c, [&](std::uint32_t small) { add(small, use); });
  }
  template <class Use>
  void add(std::uint32_t c, const Use& use) {
    const std::uint8_t bits = characters_.of(c);
    if ((bits & (kBertSpace | kBertPunctuation)) != 0) end_word(use);
    if ((bits & kBertSpace) != 0) return;
    word_end_ = end_;
    if (++length_ <= rules_.longest_word) {
      append_utf8(word_, c);
      ends_.resize(word_.size(), end_);
    }
    if ((bits & kBertPunctuation) != 0) end_word(use);
  }
  template <class Use>
  void end_word(const Use& use) {
    if (length_ > 0) use(length_ <= rules_.longest_word ? std::string_view(word_) : std::string_view());
    length_ = 0;
    word_.clear();
    ends_.clear();
  }

  const WordPieceVocabulary& rules_;
  const BertCharacters& characters_ = BertCharacters::instance();
  std::vector<std::uint32_t> decomposed_, marks_;
  std::string word_;
  std::vector<std::size_t> ends_;                      // in the text, of the characters of the word's bytes
  std::size_t end_ = 0, next_end_ = 0, word_end_ = 0;  // characters' ends: the last in the word or in marks_, the next
  std::size_t length_ = 0;                             // characters of the word; beyond the limit they are only counted
};

}  // namespace megatron
