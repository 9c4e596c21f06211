// NgramIndex: the n-grams of the texts of evaluation tasks, and where they occur in documents.
//
// A word is a run of \w in lower case. A task's text of `longest` words and more gives all its n-grams of that length,
// one of `shortest` words and more a single one, the whole text, a shorter one none. N-grams that many documents have
// are common phrases: after keep_rare() they are not found any more. 64 bits of XXH3 tell words and n-grams apart.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace megatron {

struct NgramRule {
  std::size_t shortest = 8, longest = 13;
  std::uint64_t common = 10;  ///< in this number of documents and more an n-gram is a common phrase
  /// Megatron's search (tools/openwebtext/filter_ngrams.py) with its gaps: a text of fewer than `longest` words is not
  /// searched, one of exactly `longest` words at its beginning only; shorter n-grams are looked for first, and an
  /// n-gram counts where Megatron's search comes across it. Marks are not part of words.
  bool compat = false;
};

/// A word of a text: bytes [begin, end).
struct TextWord {
  std::uint64_t hash;
  std::size_t begin, end;
  std::size_t characters;  ///< in lower case
};

/// Words of an n-gram that was found.
struct NgramMatch {
  std::size_t first, words;
};

class NgramIndex {
 public:
  /// ErrorKind::configuration unless 1 <= shortest <= longest.
  explicit NgramIndex(const NgramRule& rule);

  void add_task(std::string_view text);
  const NgramRule& rule() const { return rule_; }
  std::size_t size() const { return index_.size(); }  ///< different n-grams

  /// Counts the document for each n-gram that occurs in it. All tasks have been added.
  void count(std::string_view document);
  /// By n-gram in the order of adding: for ranks, which add them up.
  std::span<std::uint64_t> counts() { return counts_; }
  /// Forgets common n-grams; returns how many there were.
  std::size_t keep_rare();

  std::vector<TextWord> words(std::string_view text) const;
  /// The first n-gram that these words of a text have: of several that begin at a word the longest one (compat: the
  /// order of Megatron's search).
  std::optional<NgramMatch> find(std::span<const TextWord> words);

 private:
  bool may_begin(std::span<const TextWord> words, std::size_t first);
  std::size_t at(std::span<const TextWord> words, std::size_t first, std::size_t count);
  std::optional<NgramMatch> find_in_order(std::span<const TextWord> words);
  void count_in_order(std::string_view document);
  void count_once(std::size_t ngram);
  void make_filter();

  NgramRule rule_;
  std::unordered_map<std::uint64_t, std::size_t> index_;  // from an n-gram's hash to its number
  std::vector<std::uint64_t> begins_;                     // by n-gram: hash of its first `shortest` words
  std::vector<std::uint64_t> counts_, counted_in_;        // by n-gram; the last document that was counted for it
  std::vector<std::size_t> lengths_;                      // that there are, ascending
  std::vector<std::size_t> length_of_;                    // by n-gram
  std::vector<bool> filter_;                              // by bits of `begins_`; empty: to be made
  std::vector<std::uint64_t> window_;
  std::uint64_t documents_ = 0;
};

}  // namespace megatron
