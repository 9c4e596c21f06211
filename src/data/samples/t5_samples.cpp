#include "data/samples/t5_samples.h"

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr std::int64_t kT5Frame = 2;  // Megatron keeps room for two tokens around the encoder's text, and adds none

using Tokens = std::span<const std::int32_t>;
using Span = std::vector<std::uint32_t>;  // places of its tokens

SentenceMapOptions map_options(const T5SampleOptions& options) {
  verify(options.sequence_length >= kT5Frame + 2, ErrorKind::configuration,
         "model.sequence_length = {} is too short for spans and what is left of a text; at least {} are needed",
         options.sequence_length, kT5Frame + 2);
  verify(options.decoder_length >= 3, ErrorKind::configuration,
         "model.decoder_sequence_length = {} has no room for a sentinel and one token; at least 3 are needed",
         options.decoder_length);
  return {.first_document = options.first_document,
          .end_document = options.end_document,
          .most_tokens = options.sequence_length - kT5Frame,
          .fewest_sentences = 1,
          .short_probability = options.short_probability,
          .order = options.order,
          .seed = options.seed,
          .wanted_samples = options.wanted_samples};
}

/// Fits: spans of this many tokens in the decoder, each after its sentinel, and one more place for bos or eos.
struct Room {
  std::uint64_t tokens, spans;
  bool fits(std::uint64_t span_tokens, std::uint64_t span_count) const {
    return 1 + span_tokens + span_count <= tokens && span_count <= spans;
  }
};

void append(std::vector<std::int32_t>& to, std::int32_t& length, std::int32_t token) {
  to[static_cast<std::size_t>(length++)] = token;
}

/// Spans in the order of the text.
void place_spans(T5Sample& sample, Tokens text, const std::vector<Span>& spans, const MaskedVocabulary& vocabulary) {
  const SpecialIds& ids = vocabulary.ids;
  std::size_t next = 0;
  std::int32_t target_length = 0, sentinel = ids.first_sentinel;
  append(sample.tokens, sample.length, ids.bos);
  for (const Span& span : spans) {
    for (; next < span.front(); ++next) append(sample.encoder_tokens, sample.encoder_length, text[next]);
    append(sample.encoder_tokens, sample.encoder_length, sentinel);
    append(sample.tokens, sample.length, sentinel);
    append(sample.targets, target_length, sentinel);
    for (const std::uint32_t place : span) {
      append(sample.tokens, sample.length, text[place]);
      append(sample.targets, target_length, text[place]);
    }
    next = span.back() + 1;
    sentinel += ids.sentinel_step;
  }
  for (; next < text.size(); ++next) append(sample.encoder_tokens, sample.encoder_length, text[next]);
  append(sample.targets, target_length, ids.eos);
  std::fill_n(sample.weights.begin(), sample.length, 1.0f);
}

}  // namespace

T5Samples::T5Samples(const SentenceCorpus& corpus, const MaskedVocabulary& vocabulary, const T5SampleOptions& options)
    : corpus_(corpus), vocabulary_(vocabulary), options_(options), map_(corpus, map_options(options)) {
  const SpecialIds& ids = vocabulary.ids;
  verify(ids.bos >= 0 && ids.eos >= 0 && ids.pad >= 0 && ids.first_sentinel >= 0 && ids.sentinels > 0, ErrorKind::data,
         "the vocabulary lacks a token that T5's samples need: a beginning, an end, padding and sentinels; preprocess "
         "the texts with a tokenizer that has them");
}

std::uint64_t T5Samples::samples_of_a_pass(const SentenceCorpus& corpus, const T5SampleOptions& options) {
  return SentenceMap::samples_of_a_pass(corpus, map_options(options));
}

void T5Samples::make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) {
  const T5Sample made = make(sample);
  place(made.encoder_tokens, to.of<std::int32_t>(&Rows::tokens, Stream::encoder));
  place({made.encoder_length}, to.of<std::int32_t>(&Rows::lengths, Stream::encoder));
  place(made.tokens, to.of<std::int32_t>(&Rows::tokens));
  place(made.targets, to.of<std::int32_t>(&Rows::targets));
  place(made.weights, to.of<float>(&Rows::weights));
  counts[0] += made.length;
}

std::vector<NamedTokens> T5Samples::show(std::uint64_t sample) {
  const T5Sample made = make(sample);
  const auto shown = [](const std::vector<std::int32_t>& tokens, std::int32_t length) {
    return std::vector<std::int32_t>(tokens.begin(), tokens.begin() + length);
  };
  return {{"tokens", shown(made.encoder_tokens, made.encoder_length)},
          {"decoder_tokens", shown(made.tokens, made.length)},
          {"targets", shown(made.targets, made.length)}};
}

/// Text that the encoder would read without masks.
struct T5Samples::Text {
  std::vector<std::int32_t> tokens;
  bool truncated = false;
};

T5Samples::Text T5Samples::text_of(const SentenceMap::Entry& entry) const {
  const std::uint64_t first = corpus_.sentences[entry.first], tokens = corpus_.sentences[entry.end] - first;
  Text text;
  text.tokens.resize(std::min(tokens, static_cast<std::uint64_t>(entry.target)));
  text.truncated = tokens > text.tokens.size();
  if (!text.tokens.empty()) corpus_.tokens->read(first, text.tokens.size(), text.tokens.data());
  return text;
}

void T5Samples::visit_spans(std::uint64_t sample, const SentenceMap::Entry& entry, const Text& text,
                            const TakeSpan& take) const {
  const auto visit = [&](SampleDraws& draws) {
    const double most = draws.most_masked(entry.target, text.tokens.size(), options_.mask_probability);
    choose_spans(find_words(text.tokens, vocabulary_), most, SpanLengths::geometric, draws, take);
  };
  if (options_.order == SentenceOrder::megatron) {
    NumpyDraws draws(static_cast<std::uint32_t>(options_.seed + sample));
    return visit(draws);
  }
  PhiloxDraws draws(options_.seed, sample);
  visit(draws);
}

T5Needs T5Samples::needs(std::uint64_t most) const {
  const std::uint64_t count = std::min(most, samples());
  T5Needs needs;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto sample = static_cast<std::uint64_t>(static_cast<unsigned __int128>(i) * samples() / count);
    const SentenceMap::Entry entry = map_.at(sample);
    std::uint64_t spans = 0, masked = 0;
    visit_spans(sample, entry, text_of(entry), [&](std::span<const std::uint32_t> places) {
      ++spans;
      masked += places.size();
      return true;
    });
    needs.mean_spans += static_cast<double>(spans) / static_cast<double>(count);
    needs.most_spans = std::max(needs.most_spans, spans);
    needs.most_tokens = std::max(needs.most_tokens, 1 + masked + spans);
  }
  return needs;
}

T5Sample T5Samples::make(std::uint64_t sample) const {
  const SentenceMap::Entry entry = map_.at(sample);
  const Text text = text_of(entry);
  const SpecialIds& ids = vocabulary_.ids;
  const Room room{static_cast<std::uint64_t>(options_.decoder_length), static_cast<std::uint64_t>(ids.sentinels)};
  std::vector<Span> spans;
  std::uint64_t masked = 0;
  visit_spans(sample, entry, text, [&](std::span<const std::uint32_t> places) {
    if (!room.fits(masked + places.size(), spans.size() + 1)) {
      verify(options_.order != SentenceOrder::megatron, ErrorKind::configuration,
             "sample {} of Megatron's order masks spans that do not fit {} decoder tokens and {} sentinels; "
             "lengthen model.decoder_sequence_length, or use data.order = \"epoch\", which leaves such "
             "spans out",
             sample, room.tokens, room.spans);
      return false;
    }
    spans.emplace_back(places.begin(), places.end());
    masked += places.size();
    return true;
  });
  std::sort(spans.begin(), spans.end());
  T5Sample made;
  made.truncated = text.truncated;
  made.encoder_tokens.assign(static_cast<std::size_t>(options_.sequence_length), ids.pad);
  made.tokens.assign(static_cast<std::size_t>(options_.decoder_length), ids.pad);
  made.targets.assign(made.tokens.size(), 0);
  made.weights.assign(made.tokens.size(), 0.0f);
  place_spans(made, text.tokens, spans, vocabulary_);
  return made;
}

}  // namespace megatron
