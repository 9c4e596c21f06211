#include "data/samples/word_masking.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/core/error.h"
#include "base/core/philox.h"

namespace megatron {

namespace {

// Probabilities of spans of 1, 2, 3 words: 1/n, divided by their sum twice, in the steps in which Megatron rounds.
std::array<double, kMostInverseWords> inverse_probabilities() {
  std::array<double, kMostInverseWords> all{};
  for (std::size_t n = 0; n < all.size(); ++n) all[n] = 1.0 / static_cast<double>(n + 1);
  for (int time = 0; time < 2; ++time) {
    const double sum = std::accumulate(all.begin(), all.end(), 0.0);
    for (double& probability : all) probability /= sum;
  }
  return all;
}

}  // namespace

std::uint64_t NumpyDraws::split(std::uint64_t sentences) {
  return sentences < 3 ? 1 : 1 + random_.up_to(sentences - 2);
}

bool NumpyDraws::swap() {
  return random_.random() < 0.5;
}

bool NumpyDraws::cut_front(std::uint64_t /*i*/) {
  return random_.random() < 0.5;
}

// The cap of a short sample may be below one token: then none is masked.
double NumpyDraws::most_masked(std::int64_t target, std::uint64_t length, double probability) const {
  return std::min(probability * static_cast<double>(target),
                  std::max(1.0, std::nearbyint(static_cast<double>(length) * probability)));
}

void NumpyDraws::shuffle(std::span<std::uint32_t> words) {
  random_.shuffle(words);
}

std::uint64_t NumpyDraws::span_words(std::uint32_t /*word*/, SpanLengths lengths) {
  static const std::array<double, kMostInverseWords> inverse = inverse_probabilities();
  if (lengths == SpanLengths::inverse) return 1 + random_.choice(inverse);
  return std::min(random_.geometric(kGeometricProbability), kMostGeometricWords);
}

std::int32_t NumpyDraws::seen(std::uint32_t /*place*/, std::int32_t token, const MaskedVocabulary& vocabulary) {
  if (random_.random() < 0.8) return vocabulary.ids.mask;
  if (random_.random() < 0.5) return token;
  return static_cast<std::int32_t>(random_.up_to(vocabulary.size() - 1));
}

namespace {

/// Purpose of a draw of PhiloxDraws; part of its counter.
enum Purpose : std::uint32_t { kSplit, kSwap, kCut, kRank, kSpan, kSeen };

std::uint64_t joined(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;
}

/// A number in [0, size) of 64 random bits.
std::uint64_t below(std::uint64_t size, std::uint64_t random) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(random) * size >> 64);
}

}  // namespace

PhiloxDraws::PhiloxDraws(std::uint64_t seed, std::uint64_t sample)
    : key_(random_key(seed, sample, hash_name("data.order = epoch: masks"))) {}

std::uint64_t PhiloxDraws::split(std::uint64_t sentences) {
  const PhiloxCounter random = philox4x32({0, kSplit, 0, 0}, key_);
  return 1 + below(sentences - 1, joined(random[0], random[1]));
}

bool PhiloxDraws::swap() {
  return philox4x32({0, kSwap, 0, 0}, key_)[0] % 2 == 1;
}

bool PhiloxDraws::cut_front(std::uint64_t i) {
  const std::uint64_t block = i / 128;
  const PhiloxCounter random =
      philox4x32({static_cast<std::uint32_t>(block), kCut, static_cast<std::uint32_t>(block >> 32), 0}, key_);
  return (random[i / 32 % 4] >> i % 32 & 1) == 1;
}

double PhiloxDraws::most_masked(std::int64_t target, std::uint64_t length, double probability) const {
  return std::max(1.0, std::min(probability * static_cast<double>(target),
                                std::nearbyint(static_cast<double>(length) * probability)));
}

void PhiloxDraws::shuffle(std::span<std::uint32_t> words) {
  ranks_.clear();
  for (const std::uint32_t word : words) {
    const PhiloxCounter random = philox4x32({word, kRank, 0, 0}, key_);
    ranks_.emplace_back(joined(random[0], random[1]), word);
  }
  std::sort(ranks_.begin(), ranks_.end());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = ranks_[i].second;
}

std::uint64_t PhiloxDraws::span_words(std::uint32_t word, SpanLengths lengths) {
  const PhiloxCounter random = philox4x32({word, kSpan, 0, 0}, key_);
  const std::uint64_t bits = joined(random[0], random[1]);
  if (lengths == SpanLengths::inverse) {  // 11 equal parts: 6 are one word, 3 two and 2 three
    const std::uint64_t part = below(11, bits);
    return part < 6 ? 1 : part < 9 ? 2 : 3;
  }
  const double value = static_cast<double>(bits >> 11) / 9007199254740992.0;
  std::uint64_t words = 1;  // more than n with probability (1 - p)^n
  for (double more = 1 - kGeometricProbability; words < kMostGeometricWords && value < more; ++words) {
    more *= 1 - kGeometricProbability;
  }
  return words;
}

std::int32_t PhiloxDraws::seen(std::uint32_t place, std::int32_t token, const MaskedVocabulary& vocabulary) {
  const PhiloxCounter random = philox4x32({place, kSeen, 0, 0}, key_);
  const std::uint64_t tenth = below(10, joined(random[0], random[1]));
  if (tenth < 8) return vocabulary.ids.mask;
  if (tenth == 8) return token;
  return static_cast<std::int32_t>(below(vocabulary.size(), joined(random[2], random[3])));
}

TextWords find_words(std::span<const std::int32_t> tokens, const MaskedVocabulary& vocabulary) {
  TextWords text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int32_t token = tokens[i];
    if (token == vocabulary.ids.cls || token == vocabulary.ids.sep) continue;
    internal_check(token >= 0 && static_cast<std::size_t>(token) < vocabulary.continues.size(),
                   "a token outside the vocabulary", token, vocabulary.continues.size());
    const bool continues = vocabulary.continues[static_cast<std::size_t>(token)] != 0;
    if (!continues || text.places.empty()) text.starts.push_back(static_cast<std::uint32_t>(text.places.size()));
    text.places.push_back(static_cast<std::uint32_t>(i));
  }
  text.starts.push_back(static_cast<std::uint32_t>(text.places.size()));
  return text;
}

void choose_spans(const TextWords& text, double most, SpanLengths lengths, SampleDraws& draws, const TakeSpan& take) {
  std::vector<std::uint32_t> order(text.words());
  std::iota(order.begin(), order.end(), 0);
  draws.shuffle(order);
  std::vector<bool> masked(text.places.size());
  std::uint64_t count = 0;
  for (const std::uint32_t word : order) {
    if (static_cast<double>(count) >= most) return;
    const std::uint64_t drawn = std::min(draws.span_words(word, lengths), text.words() - word);
    const std::uint32_t first = text.starts[word];
    std::uint64_t end_word = word + drawn;
    while (end_word > word && static_cast<double>(count + text.starts[end_word] - first) > most) --end_word;
    if (end_word == word) continue;
    const std::uint32_t end = text.starts[end_word];
    if (std::find(masked.begin() + first, masked.begin() + end, true) != masked.begin() + end) continue;
    if (!take(std::span(text.places).subspan(first, end - first))) continue;
    std::fill(masked.begin() + first, masked.begin() + end, true);
    count += end - first;
  }
}

}  // namespace megatron
