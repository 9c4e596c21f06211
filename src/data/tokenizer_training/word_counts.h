// WordCounts: how often each of many words occurs, in the order of their first. Internal to
// src/data/tokenizer_training.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class WordCounts {
 public:
  WordCounts() : slots_(1 << 16) {}

  void add(std::string_view word);
  std::size_t size() const { return words_.size(); }
  std::string_view text(std::size_t i) const {
    return std::string_view(texts_).substr(words_[i].text, words_[i].length);
  }
  std::int64_t count(std::size_t i) const { return words_[i].count; }

 private:
  struct Word {
    std::uint64_t text = 0;  // where it begins in texts_
    std::uint32_t length = 0;
    std::uint64_t hash = 0;
    std::int64_t count = 0;
  };
  void grow();

  std::string texts_;
  std::vector<Word> words_;
  std::vector<std::uint32_t> slots_;  // numbers of words, from 1; open addressing, at most half full
};

}  // namespace megatron
