#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/token_index.h"

namespace megatron {

namespace {

constexpr std::int32_t kBytes = 256;
constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15u;

std::uint64_t hash_of(std::string_view piece) {
  std::uint64_t hash = piece.size();
  while (!piece.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min<std::size_t>(piece.size(), 8);
    std::memcpy(&word, piece.data(), taken);
    hash = (hash ^ word) * kMix;
    hash ^= hash >> 29;
    piece.remove_prefix(taken);
  }
  return hash;
}

using Pair = std::uint64_t;  // left · 2^32 + right, so that smaller pairs are smaller numbers

Pair pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
}

/// How often each pair occurs.
class PairCounts {
 public:
  struct Count {
    Pair pair = kNone;
    std::int64_t count = 0;
    std::uint32_t step = 0, list = 0;  // the merge that last made new places of it, and their list
  };

  Count& operator[](Pair pair) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Count& slot = slots_[slot_of(pair)];
    if (slot.pair == kNone) {
      slot.pair = pair;
      ++used_;
    }
    return slot;
  }

 private:
  static constexpr Pair kNone = UINT64_MAX;

  std::size_t slot_of(Pair pair) const {
    std::size_t slot = (pair * kMix >> 20) & (slots_.size() - 1);
    while (slots_[slot].pair != kNone && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }
  void grow() {
    std::vector<Count> old(2 * slots_.size());
    old.swap(slots_);
    for (const Count& count : old) {
      if (count.pair != kNone) slots_[slot_of(count.pair)] = count;
    }
  }

  std::vector<Count> slots_ = std::vector<Count>(1 << 16);
  std::size_t used_ = 0;
};

/// A pair that waits to be merged, with the count it had when it came in and the pieces that held it.
struct Candidate {
  std::int64_t count = 0;
  Pair pair = 0;
  std::uint32_t list = 0;

  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// The pieces as symbols, merged step by step.
class Merging {
 public:
  /// `text_of(i)` and `count_of(i)` of the pieces.
  template <class TextOf, class CountOf>
  Merging(std::size_t pieces, const TextOf& text_of, const CountOf& count_of,
          const std::vector<std::int32_t>& byte_ids) {
    words_.reserve(pieces);
    for (std::size_t i = 0; i < pieces; ++i) {
      const std::string_view text = text_of(i);
      words_.push_back({symbols_.size(), static_cast<std::uint32_t>(text.size()), count_of(i)});
      for (const char byte : text) symbols_.push_back(byte_ids[static_cast<unsigned char>(byte)]);
      for (std::size_t at = words_.back().begin; at + 1 < symbols_.size(); ++at) {
        add(pair_of(symbols_[at], symbols_[at + 1]), words_.back().count, static_cast<std::uint32_t>(i));
      }
    }
    offer_new_places();
  }

  /// The pair that occurs most often, at least `least` times; false if there is none.
  bool next(std::int64_t least, Candidate& best) {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      best = heap_.back();
      heap_.pop_back();
      const std::int64_t count = counts_[best.pair].count;
      if (best.count == count) return count >= std::max<std::int64_t>(least, 1);
      best.count = count;  // places of it have gone since
      push(best);
    }
    return false;
  }

  /// Merges it, wherever it is still, into the token `made`.
  void merge(const Candidate& best, std::int32_t made) {
    const std::vector<std::uint32_t> places = std::move(lists_[best.list]);
    lists_[best.list] = {};
    free_lists_.push_back(best.list);
    const auto left = static_cast<std::int32_t>(best.pair >> 32), right = static_cast<std::int32_t>(best.pair);
    for (const std::uint32_t place : places) merge_in(place, left, right, made);
    offer_new_places();
  }

 private:
  struct Word {
    std::uint64_t begin = 0;  // in symbols_
    std::uint32_t length = 0;
    std::int64_t count = 0;
  };

  void merge_in(std::uint32_t place, std::int32_t left, std::int32_t right, std::int32_t made) {
    Word& word = words_[place];
    std::int32_t* const symbols = symbols_.data() + word.begin;
    std::uint32_t kept = 0;
    for (std::uint32_t at = 0; at < word.length; ++at) {
      if (at + 1 == word.length || symbols[at] != left || symbols[at + 1] != right) {
        symbols[kept++] = symbols[at];
        continue;
      }
      if (kept > 0) {
        counts_[pair_of(symbols[kept - 1], left)].count -= word.count;
        add(pair_of(symbols[kept - 1], made), word.count, place);
      }
      ++at;
      if (at + 1 < word.length) {
        counts_[pair_of(right, symbols[at + 1])].count -= word.count;
        add(pair_of(made, symbols[at + 1]), word.count, place);
      }
      symbols[kept++] = made;
    }
    word.length = kept;
  }

  void add(Pair pair, std::int64_t count, std::uint32_t place) {
    PairCounts::Count& entry = counts_[pair];
    entry.count += count;
    if (entry.step != step_) {
      entry.step = step_;
      entry.list = new_list();
      new_pairs_.push_back(pair);
    }
    std::vector<std::uint32_t>& places = lists_[entry.list];
    if (places.empty() || places.back() != place) places.push_back(place);
  }

  std::uint32_t new_list() {
    if (free_lists_.empty()) {
      lists_.emplace_back();
      return static_cast<std::uint32_t>(lists_.size() - 1);
    }
    const std::uint32_t list = free_lists_.back();
    free_lists_.pop_back();
    return list;
  }

  void offer_new_places() {
    for (const Pair pair : new_pairs_) {
      const PairCounts::Count& entry = counts_[pair];
      if (entry.count > 0) push({entry.count, pair, entry.list});
    }
    new_pairs_.clear();
    ++step_;
  }

  void push(const Candidate& candidate) {
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
  PairCounts counts_;
  std::vector<Candidate> heap_;
  std::vector<std::vector<std::uint32_t>> lists_;  // pieces that hold a pair, perhaps no longer
  std::vector<std::uint32_t> free_lists_;
  std::vector<Pair> new_pairs_;  // of this step
  std::uint32_t step_ = 1;
};

/// The bytes in the order of their characters.
std::vector<unsigned char> bytes_by_id() {
  const ByteAlphabet alphabet;
  std::vector<unsigned char> bytes(kBytes);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  std::sort(bytes.begin(), bytes.end(),
            [&](unsigned char a, unsigned char b) { return alphabet.character_of(a) < alphabet.character_of(b); });
  return bytes;
}

}  // namespace

BpeTrainer::BpeTrainer() : slots_(1 << 16) {}

void BpeTrainer::grow() {
  slots_.assign(2 * slots_.size(), 0);
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) {
    std::size_t slot = pieces_[i].hash & (slots_.size() - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = i + 1;
  }
}

void BpeTrainer::add_text(std::string_view text) {
  bytes_ += text.size();
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    const char* const stop = scanner_.piece_end(at, end);
    const std::string_view piece(at, static_cast<std::size_t>(stop - at));
    at = stop;
    if (piece.size() > kLongestToken)
      continue;  // no word of any language; its pairs would make longer and longer tokens
    const std::uint64_t hash = hash_of(piece);
    std::size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      Piece& known = pieces_[slots_[slot] - 1];
      if (known.hash == hash && std::string_view(texts_).substr(known.text, known.length) == piece) {
        ++known.count;
        break;
      }
    }
    if (slots_[slot] != 0) continue;
    verify(pieces_.size() < UINT32_MAX / 2, ErrorKind::data, "more than 2^31 different words: train on less text");
    pieces_.push_back({texts_.size(), static_cast<std::uint32_t>(piece.size()), hash, 1});
    texts_.append(piece);
    slots_[slot] = static_cast<std::uint32_t>(pieces_.size());
    if (2 * pieces_.size() > slots_.size()) grow();
  }
}

BpeVocabulary BpeTrainer::train(std::int64_t vocab_size, std::int64_t least_count) {
  internal_check(vocab_size > kBytes && vocab_size <= static_cast<std::int64_t>(kMostTokens), "size of a vocabulary");
  BpeVocabulary vocabulary;
  std::vector<std::int32_t> byte_ids(kBytes);
  TokenIndex ids;
  const auto add_token = [&](std::string bytes) {
    const auto id = static_cast<std::int32_t>(vocabulary.tokens.size());
    ids.add(bytes, id);
    vocabulary.tokens.push_back(std::move(bytes));
    return id;
  };
  for (const unsigned char byte : bytes_by_id()) byte_ids[byte] = add_token(std::string(1, static_cast<char>(byte)));
  Merging merging(
      pieces_.size(),
      [&](std::size_t i) { return std::string_view(texts_).substr(pieces_[i].text, pieces_[i].length); },
      [&](std::size_t i) { return pieces_[i].count; }, byte_ids);
  pieces_ = {};
  slots_.assign(1 << 16, 0);
  texts_ = {};
  std::unordered_set<Pair> merged;
  Candidate best;
  while (static_cast<std::int64_t>(vocabulary.tokens.size()) + 1 < vocab_size && merging.next(least_count, best)) {
    const auto left = static_cast<std::int32_t>(best.pair >> 32), right = static_cast<std::int32_t>(best.pair);
    const std::string bytes =
        vocabulary.tokens[static_cast<std::size_t>(left)] + vocabulary.tokens[static_cast<std::size_t>(right)];
    if (bytes == kEndOfText) continue;  // no text may encode to it
    // Two pairs may make the same bytes.
    const TokenIndex::Entry* const known = ids.find(bytes);
    const std::int32_t made = known != nullptr ? known->id : add_token(bytes);
    if (merged.insert(best.pair).second) vocabulary.merges.push_back({left, right, made});
    merging.merge(best, made);
  }
  vocabulary.end_of_text = add_token(std::string(kEndOfText));
  write_files(vocabulary);
  return vocabulary;
}

}  // namespace megatron
