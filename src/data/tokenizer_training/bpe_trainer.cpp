#include "data/tokenizer_training/bpe_trainer.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "base/core/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/token_index.h"
#include "data/tokenizer_training/pair_merging.h"

namespace megatron {

namespace {

constexpr std::int32_t kBytes = 256;

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

void BpeTrainer::add_text(std::string_view text) {
  bytes_ += text.size();
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    const char* const stop = scanner_.piece_end(at, end);
    const std::string_view piece(at, static_cast<std::size_t>(stop - at));
    at = stop;
    if (piece.size() > kLongestToken)
      continue;  // no word of any language; its pairs would make longer and longer tokens
    pieces_.add(piece);
  }
}

BpeVocabulary BpeTrainer::train(std::int64_t vocab_size, std::int64_t least_count) {
  internal_check(vocab_size > kBytes && vocab_size <= static_cast<std::int64_t>(kMostTokens), "size of a vocabulary",
                 vocab_size);
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
  Merging merging(pieces_, [&](std::string_view text, std::vector<std::int32_t>& symbols) {
    for (const char byte : text) symbols.push_back(byte_ids[static_cast<unsigned char>(byte)]);
  });
  pieces_ = {};
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
