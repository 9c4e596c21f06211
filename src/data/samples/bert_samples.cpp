#include "data/samples/bert_samples.h"

#include <utility>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr std::int64_t kBertFrame = 3;  // [CLS] and two [SEP], of which a sample without sentence order lacks one

using Tokens = std::span<const std::int32_t>;

SentenceMapOptions map_options(const BertSampleOptions& options) {
  verify(options.sequence_length >= kBertFrame + 2, ErrorKind::configuration,
         "model.sequence_length = {} is too short for [CLS] A [SEP] B [SEP]; at least {} are needed",
         options.sequence_length, kBertFrame + 2);
  return {.first_document = options.first_document,
          .end_document = options.end_document,
          .most_tokens = options.sequence_length - kBertFrame,
          .fewest_sentences = options.sentence_order ? 2u : 1u,
          .short_probability = options.short_probability,
          .order = options.order,
          .seed = options.seed,
          .wanted_samples = options.wanted_samples};
}

/// Cuts tokens off the longer of the two (of equals b), until both together have `most`.
void truncate(Tokens& a, Tokens& b, std::int64_t most, SampleDraws& draws) {
  for (std::uint64_t i = 0; a.size() + b.size() > static_cast<std::size_t>(most); ++i) {
    Tokens& longer = a.size() > b.size() ? a : b;
    longer = draws.cut_front(i) ? longer.subspan(1) : longer.first(longer.size() - 1);
  }
}

class Frame {
 public:
  Frame(BertSample& sample, std::int64_t sequence_length, std::int32_t pad) : sample_(sample) {
    const auto size = static_cast<std::size_t>(sequence_length);
    sample.tokens.assign(size, pad);
    sample.types.assign(size, 0);
    sample.targets.assign(size, 0);
    sample.weights.assign(size, 0.0f);
  }
  void add(Tokens tokens, std::int32_t type) {
    for (const std::int32_t token : tokens) {
      const auto place = static_cast<std::size_t>(sample_.length++);
      sample_.tokens[place] = token;
      sample_.types[place] = type;
    }
  }

 private:
  BertSample& sample_;
};

void mask(BertSample& sample, double most, const MaskedVocabulary& vocabulary, SampleDraws& draws) {
  const TextWords text = find_words(Tokens(sample.tokens).first(static_cast<std::size_t>(sample.length)), vocabulary);
  choose_spans(text, most, SpanLengths::inverse, draws, [&](std::span<const std::uint32_t> places) {
    for (const std::uint32_t place : places) {
      std::int32_t& token = sample.tokens[place];
      sample.targets[place] = token;
      sample.weights[place] = 1.0f;
      token = draws.seen(place, token, vocabulary);
    }
    return true;
  });
}

}  // namespace

BertSamples::BertSamples(const SentenceCorpus& corpus, const MaskedVocabulary& vocabulary,
                         const BertSampleOptions& options)
    : corpus_(corpus), vocabulary_(vocabulary), options_(options), map_(corpus, map_options(options)) {
  const SpecialIds& ids = vocabulary.ids;
  verify(ids.cls >= 0 && ids.sep >= 0 && ids.mask >= 0 && ids.pad >= 0, ErrorKind::data,
         "the vocabulary lacks one of the tokens [CLS], [SEP], [MASK], [PAD] that BERT's samples need; preprocess the "
         "texts with a WordPiece vocabulary");
}

std::uint64_t BertSamples::samples_of_a_pass(const SentenceCorpus& corpus, const BertSampleOptions& options) {
  return SentenceMap::samples_of_a_pass(corpus, map_options(options));
}

BertSample BertSamples::make(std::uint64_t sample) const {
  const SentenceMap::Entry entry = map_.at(sample);
  if (options_.order == SentenceOrder::megatron) {
    NumpyDraws draws(static_cast<std::uint32_t>(options_.seed + sample));
    return make(entry, draws);
  }
  PhiloxDraws draws(options_.seed, sample);
  return make(entry, draws);
}

void BertSamples::make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) {
  internal_check(to.rows() == options_.sequence_length, "a sample of sentences cannot be cut", to.rows(),
                 options_.sequence_length);
  const BertSample made = make(sample);
  place(made.tokens, to.of<std::int32_t>(&Rows::tokens));
  place(made.types, to.of<std::int32_t>(&Rows::types));
  place(made.targets, to.of<std::int32_t>(&Rows::targets));
  place(made.weights, to.of<float>(&Rows::weights));
  place({made.length}, to.of<std::int32_t>(&Rows::lengths));
  place({made.label}, to.of<std::int32_t>(&Rows::labels));
  for (const float weight : made.weights) counts[0] += weight;
  if (options_.sentence_order) counts[1] += made.label >= 0 ? 1 : 0;
}

std::vector<NamedTokens> BertSamples::show(std::uint64_t sample) {
  const BertSample made = make(sample);
  NamedTokens masked{"masked", {}}, targets{"targets", {}};
  for (std::size_t place = 0; place < made.weights.size(); ++place) {
    if (made.weights[place] == 0) continue;
    masked.ids.push_back(static_cast<std::int32_t>(place));
    targets.ids.push_back(made.targets[place]);
  }
  return {{"tokens", {made.tokens.begin(), made.tokens.begin() + made.length}},
          {"types", {made.types.begin(), made.types.begin() + made.length}},
          std::move(masked),
          std::move(targets),
          {"label", {made.label}}};
}

BertSample BertSamples::make(const SentenceMap::Entry& entry, SampleDraws& draws) const {
  const std::uint64_t first = corpus_.sentences[entry.first];
  std::vector<std::int32_t> text(corpus_.sentences[entry.end] - first);
  if (!text.empty()) corpus_.tokens->read(first, text.size(), text.data());
  BertSample made;
  Tokens a(text), b;
  if (options_.sentence_order) {
    const std::uint64_t pivot = entry.first + draws.split(entry.end - entry.first);
    const std::uint64_t tokens = corpus_.sentences[pivot] - first;
    b = a.subspan(tokens);
    a = a.first(tokens);
    made.label = draws.swap() ? 1 : 0;
    if (made.label == 1) std::swap(a, b);
  }
  made.truncated = text.size() > static_cast<std::size_t>(entry.target);
  truncate(a, b, entry.target, draws);
  const SpecialIds& ids = vocabulary_.ids;
  Frame frame(made, options_.sequence_length, ids.pad);
  frame.add(Tokens(&ids.cls, 1), 0);
  frame.add(a, 0);
  frame.add(Tokens(&ids.sep, 1), 0);
  frame.add(b, 1);
  if (!b.empty()) frame.add(Tokens(&ids.sep, 1), 1);
  const auto length = static_cast<std::uint64_t>(made.length);
  mask(made, draws.most_masked(entry.target, length, options_.mask_probability), vocabulary_, draws);
  return made;
}

}  // namespace megatron
