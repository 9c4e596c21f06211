// Megatron's order: one mt19937(seed) draws the targets of all passes, for each document that makes samples one before
// its first sample and one after each. With ratio = round(1 / short_probability), a draw r that ratio divides gives the
// target 2 + r mod (most_tokens - 1), others give most_tokens. All samples of all passes are then shuffled together by
// mt19937_64(seed + 1). Documents of several sentences are skipped if one of them is longer than 512 tokens.
//
// The other orders draw targets by (seed, document, number of the sample in it), so that all passes have the same
// samples, and skip no document for a long sentence.
#include "data/samples/sentence_map.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <random>
#include <utility>

#include "base/core/error.h"
#include "base/core/philox.h"
#include "base/text/text.h"
#include "data/samples/sample_order.h"

namespace megatron {

namespace {

constexpr std::uint64_t kLongSentence = 512;
constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 36;
constexpr int kTargetBits = 20;

std::uint64_t pack(std::uint64_t first, std::int64_t target) {
  return first << kTargetBits | static_cast<std::uint64_t>(target);
}

class MegatronTargets {
 public:
  MegatronTargets(std::uint64_t seed, double short_probability, std::int64_t most)
      : random_(static_cast<std::uint32_t>(seed)),
        ratio_(short_probability > 0 ? static_cast<std::uint64_t>(std::round(1.0 / short_probability)) : 0),
        most_(most) {}

  std::int64_t operator()(std::uint64_t /*document*/, std::uint64_t /*ordinal*/) const {
    if (ratio_ == 0) return most_;
    const std::uint64_t value = random_();
    return value % ratio_ == 0 ? 2 + static_cast<std::int64_t>(value % static_cast<std::uint64_t>(most_ - 1)) : most_;
  }

 private:
  mutable std::mt19937 random_;
  std::uint64_t ratio_;
  std::int64_t most_;
};

class PureTargets {
 public:
  PureTargets(std::uint64_t seed, double short_probability, std::int64_t most)
      : key_(random_key(seed, 0, hash_name("data.order = epoch: lengths of samples"))),
        short_(static_cast<std::uint64_t>(short_probability * 4294967296.0)),
        most_(most) {}

  std::int64_t operator()(std::uint64_t document, std::uint64_t ordinal) const {
    const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
    const PhiloxCounter random =
        philox4x32({low(document), low(document >> 32), low(ordinal), low(ordinal >> 32)}, key_);
    if (random[0] >= short_) return most_;
    return 2 + static_cast<std::int64_t>(std::uint64_t{random[1]} * static_cast<std::uint64_t>(most_ - 1) >> 32);
  }

 private:
  std::uint64_t key_, short_;
  std::int64_t most_;
};

}  // namespace

SentenceMap::SentenceMap(const SentenceCorpus& corpus, const SentenceMapOptions& options)
    : SentenceMap(corpus, options, Counted()) {
  require_samples();
}

std::uint64_t SentenceMap::samples_of_a_pass(const SentenceCorpus& corpus, SentenceMapOptions options) {
  options.wanted_samples = 1;
  return SentenceMap(corpus, options, Counted()).samples_;
}

SentenceMap::SentenceMap(const SentenceCorpus& corpus, const SentenceMapOptions& options, Counted /*alone*/)
    : corpus_(corpus), options_(options) {
  internal_check(options.first_document <= options.end_document && options.end_document < corpus.documents.size() &&
                     corpus.documents[options.end_document] < corpus.sentences.size(),
                 "documents outside the data", options.first_document, options.end_document, corpus.documents.size(),
                 corpus.sentences.size());
  internal_check(options.most_tokens >= 2 && options.most_tokens < std::int64_t{1} << kTargetBits &&
                     options.fewest_sentences > 0 && corpus.sentences.size() <= std::uint64_t{1} << (64 - kTargetBits),
                 "a map of sentences beyond its limits", options.most_tokens, options.fewest_sentences,
                 corpus.sentences.size());
  internal_check(options.short_probability >= 0 && options.short_probability <= 1, "a probability beyond 1",
                 options.short_probability);
  count();
}

bool SentenceMap::makes_samples(std::uint64_t document) const {
  const std::uint64_t first = corpus_.documents[document], end = corpus_.documents[document + 1];
  if (end - first < options_.fewest_sentences) return false;
  if (options_.order != SentenceOrder::megatron || end - first < 2) return true;
  for (std::uint64_t i = first; i < end; ++i) {
    if (corpus_.sentences[i + 1] - corpus_.sentences[i] > kLongSentence) return false;
  }
  return true;
}

std::uint64_t SentenceMap::end_of_sample(std::uint64_t first, std::int64_t target, std::uint64_t document_end) const {
  for (std::uint64_t end = first + options_.fewest_sentences; end + 1 < document_end; ++end) {
    if (corpus_.sentences[end] - corpus_.sentences[first] >= static_cast<std::uint64_t>(target)) return end;
  }
  return document_end;
}

template <class Targets, class Visit>
void SentenceMap::visit_pass(const Targets& targets, const Visit& visit) const {
  for (std::uint64_t document = options_.first_document; document < options_.end_document; ++document) {
    if (!makes_samples(document)) continue;
    const std::uint64_t end = corpus_.documents[document + 1];
    std::uint64_t first = corpus_.documents[document], ordinal = 0;
    std::int64_t target = targets(document, ordinal);
    while (first < end) {
      visit(first, target);
      first = end_of_sample(first, target, end);
      target = targets(document, ++ordinal);
    }
  }
}

void SentenceMap::count() {
  const std::uint64_t first = options_.first_document, end = options_.end_document;
  verify(options_.wanted_samples <= kMostSamples, ErrorKind::data,
         "documents {} to {}: an index of {} samples has more than 2^36 elements; train or evaluate for less", first,
         end, options_.wanted_samples);
  const auto add = [this](std::uint64_t, std::int64_t) { ++samples_; };
  if (options_.order != SentenceOrder::megatron) {
    visit_pass(PureTargets(options_.seed, options_.short_probability, options_.most_tokens), add);
  } else {
    const MegatronTargets targets(options_.seed, options_.short_probability, options_.most_tokens);
    for (passes_ = 0; samples_ < options_.wanted_samples; ++passes_) {
      visit_pass(targets, add);
      if (samples_ == 0) break;
    }
  }
}

void SentenceMap::require_samples() const {
  const std::uint64_t first = options_.first_document, end = options_.end_document;
  const bool none_is_enough = options_.order == SentenceOrder::megatron && options_.wanted_samples == 0;
  verify(samples_ > 0 || none_is_enough, ErrorKind::data,
         "documents {} to {} make no sample: a document needs {} sentence{}{}; split the texts into sentences when you "
         "preprocess them, or give this part of the data more documents (data.split)",
         first, end, options_.fewest_sentences, options_.fewest_sentences == 1 ? "" : "s",
         options_.order == SentenceOrder::megatron
             ? ", and in Megatron's order none of several is longer than 512 tokens"
             : "");
}

void SentenceMap::build() const {
  const auto add = [this](std::uint64_t first, std::int64_t target) { entries_.push_back(pack(first, target)); };
  try {
    entries_.reserve(samples_);
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::configuration,
         "too little memory for an index of {} bytes on each rank that reads data, for {} samples of sentences; use "
         "fewer ranks per node, or train for less",
         samples_ * sizeof(std::uint64_t), samples_);
  }
  if (options_.order != SentenceOrder::megatron) {
    visit_pass(PureTargets(options_.seed, options_.short_probability, options_.most_tokens), add);
    return;
  }
  const MegatronTargets targets(options_.seed, options_.short_probability, options_.most_tokens);
  for (std::uint64_t pass = 0; pass < passes_; ++pass) visit_pass(targets, add);
  std::mt19937_64 random(options_.seed + 1);
  for (std::uint64_t i = entries_.size(); i-- > 1;) std::swap(entries_[i], entries_[random() % (i + 1)]);
}

std::uint64_t SentenceMap::place_of(std::uint64_t sample) const {
  if (options_.order == SentenceOrder::megatron) {
    verify(sample < samples_, ErrorKind::configuration,
           "sample {} was asked for, but Megatron's order made for {} samples has {} (data.order_samples, or the "
           "length of "
           "the run)",
           sample, options_.wanted_samples, samples_);
    return sample;
  }
  const std::uint64_t pass = sample / samples_, place = sample % samples_;
  if (options_.order == SentenceOrder::sequential) return place;
  return permute(place, samples_, random_key(options_.seed, pass, hash_name("data.order = epoch: sentences")));
}

SentenceMap::Entry SentenceMap::at(std::uint64_t sample) const {
  const std::uint64_t place = place_of(sample);
  std::call_once(built_, [this] { build(); });
  Entry entry{.first = entries_[place] >> kTargetBits,
              .target = static_cast<std::int64_t>(entries_[place] & ((std::uint64_t{1} << kTargetBits) - 1))};
  const auto document_end = std::upper_bound(corpus_.documents.begin(), corpus_.documents.end(), entry.first);
  entry.end = end_of_sample(entry.first, entry.target, *document_end);
  return entry;
}

std::string SentenceMap::description() const {
  const double mebibytes = static_cast<double>(samples_ * sizeof(std::uint64_t)) / (1 << 20);
  if (options_.order != SentenceOrder::megatron) {
    return fmt::format("epoch: {} per pass, an index of {:.1f} MiB on ranks that read data",
                       counted(static_cast<std::int64_t>(samples_), "sample"), mebibytes);
  }
  return fmt::format("megatron: made for {} samples, {} pass{}, an index of {:.1f} MiB on ranks that read data",
                     options_.wanted_samples, passes_, passes_ == 1 ? "" : "es", mebibytes);
}

}  // namespace megatron
