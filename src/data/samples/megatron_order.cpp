#include "data/samples/megatron_order.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/core/error.h"
#include "data/samples/numpy_random.h"

namespace megatron {

namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kBlock = 64;
constexpr std::uint64_t kMostEntries = std::uint64_t{1} << 36;

}  // namespace

CompactIndex::CompactIndex(std::uint64_t size, std::uint64_t end) : is_wide_(bytes_each(end) == 8) {
  is_wide_ ? wide_.reserve(size) : narrow_.reserve(size);
}

void CompactIndex::append_shuffled(std::uint64_t first, std::uint64_t end, std::uint64_t copies, NumpyRandom& random) {
  const auto append = [&](auto& values) {
    const std::size_t old = values.size();
    for (std::uint64_t copy = 0; copy < copies; ++copy) {
      for (std::uint64_t value = first; value < end; ++value) {
        values.push_back(static_cast<typename std::decay_t<decltype(values)>::value_type>(value));
      }
    }
    random.shuffle(std::span(values).subspan(old));
  };
  is_wide_ ? append(wide_) : append(narrow_);
}

MegatronOrder::MegatronOrder(std::span<const std::uint64_t> starts, std::uint64_t first_document,
                             std::uint64_t end_document, std::int64_t sequence_length, std::uint32_t seed,
                             std::uint64_t wanted_samples, std::string name)
    : SampleOrder(sequence_length),
      starts_(starts),
      first_document_(first_document),
      end_document_(end_document),
      wanted_samples_(wanted_samples),
      seed_(seed),
      name_(std::move(name)) {
  internal_check(first_document <= end_document && end_document < starts.size(), "documents outside the data",
                 first_document, end_document, starts.size());
  tokens_per_epoch_ = starts[end_document] - starts[first_document];
  verify(tokens_per_epoch_ > 0, ErrorKind::data, "documents {} to {} have no tokens to make samples of", first_document,
         end_document);
  const Wide tokens = Wide{wanted_samples} * sequence_length_ + 1;  // in the wanted samples, shared ones counted once
  const Wide epochs = (tokens + tokens_per_epoch_ - 1) / tokens_per_epoch_;
  const Wide samples = (epochs * tokens_per_epoch_ - 1) / sequence_length_;
  verify(epochs * (end_document - first_document) <= kMostEntries && samples <= kMostEntries, ErrorKind::data,
         "data.order = \"{}\": {} samples of {} tokens out of {} documents with {} tokens take an index of more "
         "than 2^36 elements; train or evaluate for less, or use data.order = \"epoch\", which needs no index",
         name_, wanted_samples, sequence_length, end_document - first_document, tokens_per_epoch_);
  epochs_ = static_cast<std::uint64_t>(epochs);
  samples_ = static_cast<std::uint64_t>(samples);
  if (epochs_ == 1) return;
  const std::uint64_t per_epoch = (tokens_per_epoch_ - 1) / sequence_length_;
  const auto enough = static_cast<std::uint64_t>(0.80 * static_cast<double>(per_epoch));
  samples_before_last_epoch_ = ((epochs_ - 1) * tokens_per_epoch_ - 1) / sequence_length_;
  separate_last_epoch_ = wanted_samples - samples_before_last_epoch_ < enough;
}

void MegatronOrder::build() const {
  try {
    try_to_build();
  } catch (const std::bad_alloc&) {
    documents_ = shuffle_ = {};
    block_tokens_ = {};
    fail(
        ErrorKind::configuration,
        "data.order = \"{}\": too little memory for an index of {} bytes on each rank that reads data, for {} "
        "samples in {} passes over {} documents; use fewer ranks per node, a smaller data.order_samples, or data.order "
        "= \"epoch\", which needs no index",
        name_, index_bytes(), samples_, epochs_, end_document_ - first_document_);
  }
}

void MegatronOrder::try_to_build() const {
  NumpyRandom random(seed_);
  documents_ = CompactIndex(document_entries(), end_document_);
  documents_.append_shuffled(first_document_, end_document_, separate_last_epoch_ ? epochs_ - 1 : epochs_, random);
  if (separate_last_epoch_) documents_.append_shuffled(first_document_, end_document_, 1, random);
  const std::uint64_t together = separate_last_epoch_ ? samples_before_last_epoch_ : samples_;
  shuffle_ = CompactIndex(samples_, samples_);
  shuffle_.append_shuffled(0, together, 1, random);
  shuffle_.append_shuffled(together, samples_, 1, random);
  block_tokens_.reserve(documents_.size() / kBlock + 1);
  std::uint64_t tokens = 0;
  for (std::uint64_t position = 0; position < documents_.size(); ++position) {
    if (position % kBlock == 0) block_tokens_.push_back(tokens);
    tokens += length_at(position);
  }
}

std::uint64_t MegatronOrder::length_at(std::uint64_t position) const {
  const std::uint64_t document = documents_[position];
  return starts_[document + 1] - starts_[document];
}

std::uint64_t MegatronOrder::index_bytes() const {
  return document_entries() * CompactIndex::bytes_each(end_document_) + samples_ * CompactIndex::bytes_each(samples_) +
         document_entries() / kBlock * 8;
}

std::string MegatronOrder::description() const {
  return fmt::format("{}: made for {} samples, {} pass{}{}, an index of {:.1f} MiB on ranks that read data", name_,
                     wanted_samples_, epochs_, epochs_ == 1 ? "" : "es",
                     separate_last_epoch_ ? ", the last on its own" : "",
                     static_cast<double>(index_bytes()) / (1 << 20));
}

std::uint64_t MegatronOrder::document_index(std::uint64_t position) const {
  std::call_once(built_, [this] { build(); });
  internal_check(position < documents_.size(), "beyond the document index", position, documents_.size());
  return documents_[position];
}

MegatronOrder::TextPosition MegatronOrder::sample_index(std::uint64_t k) const {
  std::call_once(built_, [this] { build(); });
  internal_check(k <= samples_, "beyond the sample index", k, samples_);
  if (k == 0) return {0, 0};  // even if an empty document is first
  const std::uint64_t token = k * sequence_length_;
  const auto block = std::upper_bound(block_tokens_.begin(), block_tokens_.end(), token) - 1;
  std::uint64_t position = static_cast<std::uint64_t>(block - block_tokens_.begin()) * kBlock;
  std::uint64_t offset = token - *block;
  for (std::uint64_t length = length_at(position); offset >= length; length = length_at(position)) {
    offset -= length;
    ++position;
  }
  return {position, offset};
}

std::uint64_t MegatronOrder::shuffle_index(std::uint64_t i) const {
  std::call_once(built_, [this] { build(); });
  verify(i < samples_, ErrorKind::configuration,
         "data.order = \"{}\": sample {} was asked for, but the order made for {} samples has {} "
         "(data.order_samples, or the length of the run)",
         name_, i, wanted_samples_, samples_);
  return shuffle_[i];
}

void MegatronOrder::locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const {
  auto [position, offset] = sample_index(shuffle_index(sample));
  ranges.clear();
  for (std::uint64_t missing = sequence_length_ + 1; missing > 0; ++position) {
    const std::uint64_t here = std::min(missing, length_at(position) - offset);
    if (here > 0) ranges.push_back({starts_[documents_[position]] + offset, here});
    missing -= here;
    offset = 0;
  }
}

}  // namespace megatron
