#include "data/tokenizer_training/word_piece_trainer.h"

#include <algorithm>
#include <map>

#include "base/core/error.h"
#include "data/tokenizer_training/pair_merging.h"

namespace megatron {

namespace {

constexpr const char* kSpecialTokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

/// Calls use(code point, whether it is the first) for each character of a word.
template <class Use>
void for_each_character(std::string_view word, const Use& use) {
  for (std::size_t at = 0; at < word.size();) {
    const CodePoint c = first_code_point(word.substr(at, 4));
    use(c.value, at == 0);
    at += c.bytes;
  }
}

/// The tokens so far, and the symbols of the characters that are kept.
class Alphabet {
 public:
  Alphabet(const WordCounts& words, std::size_t largest) {
    struct Seen {
      std::int64_t count = 0;
      bool first = false, later = false;
    };
    std::map<std::uint32_t, Seen> seen;
    for (std::size_t i = 0; i < words.size(); ++i) {
      for_each_character(words.text(i), [&](std::uint32_t c, bool first) {
        Seen& one = seen[c];
        one.count += words.count(i);
        (first ? one.first : one.later) = true;
      });
    }
    std::vector<std::pair<std::int64_t, std::uint32_t>> by_count;  // the most frequent first, then by code point
    for (const auto& [c, one] : seen) by_count.emplace_back(-one.count, c);
    std::sort(by_count.begin(), by_count.end());
    by_count.resize(std::min(by_count.size(), largest));
    std::vector<std::uint32_t> kept;
    for (const auto& [count, c] : by_count) kept.push_back(c);
    std::sort(kept.begin(), kept.end());
    for (const char* name : kSpecialTokens) add(name);
    for (const std::uint32_t c : kept) {
      if (seen.at(c).first) first_[c] = add_character("", c);
    }
    for (const std::uint32_t c : kept) {
      if (seen.at(c).later) later_[c] = add_character(std::string(kContinuation), c);
    }
  }

  /// Appends the symbols of a word; none if one of its characters is not kept.
  void append_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
    const std::size_t begin = symbols.size();
    bool complete = true;
    for_each_character(word, [&](std::uint32_t c, bool first) {
      const auto& of = first ? first_ : later_;
      const auto found = of.find(c);
      complete = complete && found != of.end();
      if (complete) symbols.push_back(found->second);
    });
    if (!complete) symbols.resize(begin);
  }

  const TokenIndex& ids() const { return ids_; }
  std::size_t size() const { return ids_.entries().size(); }
  const std::string& token(std::int32_t id) const { return ids_.entries()[static_cast<std::size_t>(id)].bytes; }
  std::int32_t add(std::string token) {
    const auto id = static_cast<std::int32_t>(size());
    ids_.add(std::move(token), id);
    return id;
  }

 private:
  std::int32_t add_character(std::string before, std::uint32_t c) {
    append_utf8(before, c);
    return add(std::move(before));
  }

  TokenIndex ids_;  // in the order of the ids
  std::map<std::uint32_t, std::int32_t> first_, later_;
};

WordPieceVocabulary rules(bool lower_case) {
  WordPieceVocabulary made;
  made.lower_case = made.strip_accents = lower_case;
  return made;
}

}  // namespace

WordPieceTrainer::WordPieceTrainer(bool lower_case) : rules_(rules(lower_case)), splitter_(rules_) {}

void WordPieceTrainer::add_text(std::string_view text) {
  bytes_ += text.size();
  splitter_.split(text, [&](std::string_view word) {
    if (!word.empty()) words_.add(word);  // one that is too long is no word
  });
}

std::vector<std::string> WordPieceTrainer::train(std::int64_t vocab_size, std::int64_t least_count) {
  internal_check(vocab_size >= kSmallestWordPieceVocabulary, "size of a vocabulary", vocab_size);
  const auto size = static_cast<std::size_t>(vocab_size);
  // Each character may be two tokens.
  Alphabet alphabet(words_, std::min(kLargestAlphabet, (size - std::size(kSpecialTokens)) / 2));
  Merging merging(words_, [&](std::string_view word, std::vector<std::int32_t>& symbols) {
    alphabet.append_symbols(word, symbols);
  });
  words_ = {};
  Candidate best;
  while (alphabet.size() < size && merging.next(least_count, best)) {
    const auto left = static_cast<std::int32_t>(best.pair >> 32), right = static_cast<std::int32_t>(best.pair);
    std::string token = alphabet.token(left) + alphabet.token(right).substr(kContinuation.size());
    // Two pairs may make the same token.
    const TokenIndex::Entry* const known = alphabet.ids().find(token);
    merging.merge(best, known != nullptr ? known->id : alphabet.add(std::move(token)));
  }
  std::vector<std::string> tokens;
  for (const auto& [token, id] : alphabet.ids().entries()) tokens.push_back(token);
  return tokens;
}

}  // namespace megatron
