// Made-up texts for the tests of cleaning: words that no two texts share by accident, and edits of a known similarity.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/core/philox.h"

namespace megatron::test {

/// Numbers of one seed, the same on each machine.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : key_(random_key(seed, 0, hash_name("cleaning tests"))) {}
  std::uint32_t below(std::uint32_t limit) {
    return philox4x32({static_cast<std::uint32_t>(next_++), 0, 0, 0}, key_)[0] % limit;
  }

 private:
  std::uint64_t key_, next_ = 0;
};

/// A word of twelve letters.
inline std::string made_up_word(Numbers& numbers) {
  std::string word;
  for (int i = 0; i < 12; ++i) word += static_cast<char>('a' + numbers.below(26));
  return word;
}

inline std::vector<std::string> made_up_words(Numbers& numbers, std::size_t count) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < count; ++i) words.push_back(made_up_word(numbers));
  return words;
}

/// These words with this many in the middle, in one run, replaced by others.
inline std::vector<std::string> edited(std::vector<std::string> words, std::size_t replaced, Numbers& numbers) {
  const std::size_t first = (words.size() - replaced) / 2;
  for (std::size_t i = first; i < first + replaced; ++i) words[i] = made_up_word(numbers);
  return words;
}

inline std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace megatron::test
