#include "data/samples/next_token_samples.h"

#include <algorithm>
#include <utility>

namespace megatron {

void find_document_starts(std::span<const std::int32_t> tokens, std::int32_t end_of_document,
                          std::span<std::int32_t> starts) {
  std::int32_t start = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    starts[i] = start;
    if (tokens[i] == end_of_document) start = static_cast<std::int32_t>(i) + 1;
  }
}

SampleReader::SampleReader(TokenSource& source, const SampleOrder& order)
    : source_(source), order_(order), tokens_(static_cast<std::size_t>(order.sequence_length() + 1)) {
  ranges_.reserve(tokens_.size());
}

std::span<const std::int32_t> SampleReader::read(std::uint64_t sample) {
  order_.locate(sample, ranges_);
  std::int32_t* to = tokens_.data();
  for (const TokenRange& range : ranges_) {
    source_.read(range.first, range.count, to);
    to += range.count;
  }
  internal_check(to == tokens_.data() + tokens_.size(), "a sample of another length", to - tokens_.data(),
                 tokens_.size());
  return tokens_;
}

NextTokenSamples::NextTokenSamples(TokenSource& source, const SampleOrder& order, std::int32_t end_of_document,
                                   LossWeights weigh)
    : order_(order),
      end_of_document_(end_of_document),
      weigh_(std::move(weigh)),
      reader_(source, order),
      starts_(static_cast<std::size_t>(order.sequence_length())),
      weights_(static_cast<std::size_t>(order.sequence_length())) {}

namespace {

template <class T>
void place(std::span<const T> values, const Column<T>& to) {
  for (std::int64_t i = 0; i < to.size(); ++i) to[i] = values[static_cast<std::size_t>(i)];
}

}  // namespace

void NextTokenSamples::make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) {
  const std::lock_guard lock(mutex_);
  const auto rows = static_cast<std::size_t>(to.rows());
  const std::span<const std::int32_t> tokens = reader_.read(sample).first(rows + 1);
  place(tokens, to.of<std::int32_t>(&Rows::tokens));
  place(tokens.subspan(1), to.of<std::int32_t>(&Rows::targets));
  place_documents(tokens, to);
  const std::span<float> weights = std::span(weights_).first(rows);
  std::fill(weights.begin(), weights.end(), 1.0f);
  counts[0] += weigh_ ? weigh_(tokens, weights) : static_cast<double>(rows);
  place(std::span<const float>(weights), to.of<float>(&Rows::weights));
}

void NextTokenSamples::place_documents(std::span<const std::int32_t> tokens, const SampleColumn& to) {
  const Column<std::int32_t> document_starts = to.of<std::int32_t>(&Rows::document_starts);
  const Column<std::int32_t> position_ids = to.of<std::int32_t>(&Rows::position_ids);
  if (!document_starts && !position_ids) return;
  const std::span<std::int32_t> starts = std::span(starts_).first(tokens.size() - 1);
  find_document_starts(tokens, end_of_document_, starts);
  place(std::span<const std::int32_t>(starts), document_starts);
  for (std::int64_t i = 0; i < position_ids.size(); ++i) {
    position_ids[i] = static_cast<std::int32_t>(i) - starts[static_cast<std::size_t>(i)];
  }
}

std::optional<double> NextTokenSamples::count_per_sample(const BatchSizes& sizes) const {
  if (weigh_ != nullptr) return std::nullopt;
  return static_cast<double>(sizes.rows_of(Stream::main));
}

std::vector<NamedTokens> NextTokenSamples::show(std::uint64_t sample) {
  const std::lock_guard lock(mutex_);
  const std::span<const std::int32_t> tokens = reader_.read(sample);
  return {{"tokens", {tokens.begin(), tokens.end()}}};
}

}  // namespace megatron
