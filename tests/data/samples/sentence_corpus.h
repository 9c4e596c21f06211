// Documents of sentences in memory, and the golden file of Megatron's samples of them
// (scripts/golden/make_bert_samples_golden.py).
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/samples/sentence_map.h"
#include "data/samples/word_masking.h"
#include "support/catch.h"

namespace megatron::test {

using Ids = std::vector<std::int32_t>;

class MemoryTokens final : public TokenSource {
 public:
  Ids ids;
  std::uint64_t tokens() const override { return ids.size(); }
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* to) override {
    if (count == 0 || first + count > ids.size()) throw std::out_of_range("tokens that do not exist");
    std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(first), count, to);
  }
};

/// Sentences of these lengths, with tokens as the golden script makes them up.
class MemoryCorpus {
 public:
  using Lengths = std::vector<std::vector<std::uint64_t>>;

  MemoryCorpus(const Lengths& documents, std::int32_t words, std::int32_t first_word, std::int32_t continues_every,
               std::uint64_t seed, std::int32_t sentinels = 0)
      : continues_(static_cast<std::size_t>(words + (sentinels > 0 ? sentinels + 2 : 0))) {
    for (std::int32_t id = 0; id < words; ++id) continues_[static_cast<std::size_t>(id)] = id % continues_every == 0;
    ids_ = {.cls = 2, .sep = 3, .mask = 4, .pad = 0};
    if (sentinels > 0) {
      ids_.bos = words;
      ids_.eos = words + 1;
      ids_.first_sentinel = words + 2;
      ids_.sentinels = sentinels;
    }
    for (const std::vector<std::uint64_t>& lengths : documents) {
      for (const std::uint64_t length : lengths) {
        for (std::uint64_t i = 0; i < length; ++i) {
          seed = seed * 6364136223846793005u + 1442695040888963407u;
          const auto range = static_cast<std::uint64_t>(words - first_word);
          tokens_.ids.push_back(first_word + static_cast<std::int32_t>((seed >> 33) % range));
        }
        sentences_.push_back(tokens_.ids.size());
      }
      documents_.push_back(sentences_.size() - 1);
    }
  }
  MemoryCorpus(const nlohmann::json& made, std::int32_t sentinels)
      : MemoryCorpus(made.at("lengths").get<Lengths>(), made.at("words"), made.at("first_word"),
                     made.at("continues_every"), made.at("seed"), sentinels) {}

  SentenceCorpus corpus() { return {&tokens_, sentences_, documents_}; }
  MaskedVocabulary vocabulary() const { return {ids_, continues_}; }
  SpecialIds& special_ids() { return ids_; }
  const Ids& tokens() const { return tokens_.ids; }
  std::uint64_t documents() const { return documents_.size() - 1; }
  std::uint64_t sentence(std::uint64_t i) const { return sentences_.at(i); }

 private:
  MemoryTokens tokens_;
  std::vector<std::uint64_t> sentences_{0}, documents_{0};
  std::vector<std::uint8_t> continues_;
  SpecialIds ids_;
};

inline const nlohmann::json& golden_samples() {
  static const nlohmann::json file = [] {
    std::ifstream stream(MEGATRON_GOLDEN_FOLDER "/bert_samples.json");
    return nlohmann::json::parse(stream);
  }();
  return file;
}

/// The sum that the golden file has of long lists.
template <class T>
std::uint64_t checksum(const std::vector<T>& values, std::uint64_t sum = 0) {
  for (const T value : values) sum = 31 * sum + static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  return sum;
}

inline std::vector<std::uint64_t> flat_map(const SentenceMap& map) {
  std::vector<std::uint64_t> flat;
  for (std::uint64_t i = 0; i < map.samples(); ++i) {
    const SentenceMap::Entry entry = map.at(i);
    flat.insert(flat.end(), {entry.first, entry.end, static_cast<std::uint64_t>(entry.target)});
  }
  return flat;
}

/// The fields of a sample under Megatron's names.
using Fields = std::vector<std::pair<const char*, Ids>>;

/// Compares all samples of a case by sums, and those that the file has in full by elements.
template <class MakeFields>
void check_fields(const nlohmann::json& row, const MakeFields& fields_of) {
  std::vector<std::uint64_t> sums;
  const std::size_t in_full = row.at("full").size();
  for (std::uint64_t i = 0; i < row.at("samples").get<std::uint64_t>(); ++i) {
    const Fields fields = fields_of(i);
    REQUIRE(fields.size() == row.at("sums").size());
    sums.resize(fields.size());
    for (std::size_t f = 0; f < fields.size(); ++f) {
      const auto& [name, values] = fields[f];
      sums[f] = checksum(values, sums[f]);
      if (i >= in_full) continue;
      INFO("sample " << i << ", " << name);
      CHECK(values == row.at("full")[i].at(name).get<Ids>());
    }
    if (i + 1 < row.at("samples").get<std::uint64_t>()) continue;
    for (std::size_t f = 0; f < fields.size(); ++f) {
      INFO(fields[f].first);
      CHECK(sums[f] == row.at("sums").at(fields[f].first).get<std::uint64_t>());
    }
  }
}

}  // namespace megatron::test
