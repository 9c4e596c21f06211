// Masks over whole words: which words of a text are predicted, in spans of one word or several. BertSamples and
// T5Samples share it. SampleDraws: the random decisions that a sample is made with, in the order in which Megatron
// takes them; NumpyDraws takes them as Megatron does, PhiloxDraws as functions of the sample's number and of what they
// are about. Knows neither batches nor models.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/samples/numpy_random.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// Facts about a vocabulary that masks need.
struct MaskedVocabulary {
  SpecialIds ids;
  std::span<const std::uint8_t> continues;  ///< [size]: 1: a piece that continues a word

  std::uint64_t size() const { return continues.size(); }
};

enum class SpanLengths {
  inverse,    ///< BERT: 1 to 3 words, n with a probability proportional to 1/n
  geometric,  ///< T5: at most 10 words, geometric with probability 0.2
};
inline constexpr std::uint64_t kMostInverseWords = 3, kMostGeometricWords = 10;
inline constexpr double kGeometricProbability = 0.2;

class SampleDraws {
 public:
  virtual ~SampleDraws() = default;
  SampleDraws() = default;
  SampleDraws(const SampleDraws&) = delete;
  SampleDraws& operator=(const SampleDraws&) = delete;

  /// How many of two or more sentences are the first part: at least one, not all.
  virtual std::uint64_t split(std::uint64_t sentences) = 0;
  virtual bool swap() = 0;
  /// Whether the i-th token that is cut off a text that is too long is cut off its front.
  virtual bool cut_front(std::uint64_t i) = 0;
  /// Tokens of a text of `length` that are masked at most, of a sample with this target.
  virtual double most_masked(std::int64_t target, std::uint64_t length, double probability) const = 0;
  /// Puts the numbers of words into the order in which they are tried.
  virtual void shuffle(std::span<std::uint32_t> words) = 0;
  /// Words of the span that begins with this one.
  virtual std::uint64_t span_words(std::uint32_t word, SpanLengths lengths) = 0;
  /// The token that the model sees in place of a masked one: the mask (80 %), any token, or the token itself.
  virtual std::int32_t seen(std::uint32_t place, std::int32_t token, const MaskedVocabulary& vocabulary) = 0;
};

class NumpyDraws final : public SampleDraws {
 public:
  explicit NumpyDraws(std::uint32_t seed) : random_(seed) {}
  std::uint64_t split(std::uint64_t sentences) override;
  bool swap() override;
  bool cut_front(std::uint64_t i) override;
  double most_masked(std::int64_t target, std::uint64_t length, double probability) const override;
  void shuffle(std::span<std::uint32_t> words) override;
  std::uint64_t span_words(std::uint32_t word, SpanLengths lengths) override;
  std::int32_t seen(std::uint32_t place, std::int32_t token, const MaskedVocabulary& vocabulary) override;

 private:
  NumpyRandom random_;
};

/// As Megatron's but for most_masked: at least one token.
class PhiloxDraws final : public SampleDraws {
 public:
  PhiloxDraws(std::uint64_t seed, std::uint64_t sample);
  std::uint64_t split(std::uint64_t sentences) override;
  bool swap() override;
  bool cut_front(std::uint64_t i) override;
  double most_masked(std::int64_t target, std::uint64_t length, double probability) const override;
  void shuffle(std::span<std::uint32_t> words) override;
  std::uint64_t span_words(std::uint32_t word, SpanLengths lengths) override;
  std::int32_t seen(std::uint32_t place, std::int32_t token, const MaskedVocabulary& vocabulary) override;

 private:
  std::uint64_t key_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> ranks_;
};

/// The words of a text: word w is the tokens at the places [starts[w], starts[w + 1]) of `places`. Tokens that frame
/// texts (cls, sep) belong to none, and a piece that continues a word joins the word before them.
struct TextWords {
  std::vector<std::uint32_t> places, starts;
  std::uint64_t words() const { return starts.size() - 1; }
};
TextWords find_words(std::span<const std::int32_t> tokens, const MaskedVocabulary& vocabulary);

/// Calls take(places) for each span to mask, in the order in which they are drawn. take returns whether it did; then no
/// later span has any of these places. All together have at most `most` tokens. A span that is too long gives up
/// words from its end.
using TakeSpan = std::function<bool(std::span<const std::uint32_t> places)>;
void choose_spans(const TextWords& text, double most, SpanLengths lengths, SampleDraws& draws, const TakeSpan& take);

}  // namespace megatron
