// Merging: words as rows of symbols, of which the pair of neighbours that occurs most often becomes one symbol, again
// and again. Of pairs that occur equally often the one with the smaller ids is taken, left before right. What a symbol
// stands for is its users' business. Internal to src/data/tokenizer_training.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/tokenizer_training/word_counts.h"

namespace megatron {

using Pair = std::uint64_t;  // left · 2^32 + right, so that smaller pairs are smaller numbers

inline Pair pair_of(std::int32_t left, std::int32_t right) {
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
    std::size_t slot = (pair * 0x9E3779B97F4A7C15u >> 20) & (slots_.size() - 1);
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
  /// `append_symbols(text, symbols)` appends those of a word; none leave it out.
  template <class AppendSymbols>
  Merging(const WordCounts& words, const AppendSymbols& append_symbols) {
    words_.reserve(words.size());
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t begin = symbols_.size();
      append_symbols(words.text(i), symbols_);
      words_.push_back({begin, static_cast<std::uint32_t>(symbols_.size() - begin), words.count(i)});
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
  std::vector<Pair> new_pairs_;  // this step's
  std::uint32_t step_ = 1;
};

}  // namespace megatron
