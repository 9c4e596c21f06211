#include "data/tokenizer_training/word_counts.h"

#include <algorithm>
#include <cstring>

#include "base/core/error.h"

namespace megatron {

namespace {

std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = word.size();
  while (!word.empty()) {
    std::uint64_t eight = 0;
    const std::size_t taken = std::min<std::size_t>(word.size(), 8);
    std::memcpy(&eight, word.data(), taken);
    hash = (hash ^ eight) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
    word.remove_prefix(taken);
  }
  return hash;
}

}  // namespace

void WordCounts::grow() {
  slots_.assign(2 * slots_.size(), 0);
  for (std::uint32_t i = 0; i < words_.size(); ++i) {
    std::size_t slot = words_[i].hash & (slots_.size() - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = i + 1;
  }
}

void WordCounts::add(std::string_view word) {
  const std::uint64_t hash = hash_of(word);
  std::size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const std::size_t known = slots_[slot] - 1;
    if (words_[known].hash != hash || text(known) != word) continue;
    ++words_[known].count;
    return;
  }
  verify(words_.size() < UINT32_MAX / 2, ErrorKind::data, "more than 2^31 different words: train on less text");
  words_.push_back({texts_.size(), static_cast<std::uint32_t>(word.size()), hash, 1});
  texts_.append(word);
  slots_[slot] = static_cast<std::uint32_t>(words_.size());
  if (2 * words_.size() > slots_.size()) grow();
}

}  // namespace megatron
