#include "backend/cpu/attention_problem.h"

#include <algorithm>

namespace megatron {

KeyRange AttentionProblem::visible(std::int64_t sample, std::int64_t query) const {
  const std::int64_t position = query_offset(sample) + query;
  KeyRange range{0, keys};
  if (mask_.causal || mask_.window > 0) range.high = std::min(range.high, position + 1);
  if (mask_.window > 0) range.low = std::max(range.low, position + 1 - mask_.window);
  // Ranges are of rows.
  if (mask_.key_lengths) {
    range.high = std::min(range.high, mask_.key_lengths.as<std::int32_t>()[sample] - mask_.first_key);
  }
  if (mask_.document_starts) {
    range.low =
        std::max(range.low, mask_.document_starts.as<std::int32_t>()[sample * queries + query] - mask_.first_key);
  }
  return range.empty() ? KeyRange{} : range;
}

QueryBlock AttentionProblem::query_block(std::int64_t sample, std::int64_t first) const {
  QueryBlock block;
  block.sample = sample;
  block.first = first;
  block.rows = std::min(kQueryBlock, queries - first);
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const KeyRange range = visible(sample, first + row);
    block.visible[static_cast<std::size_t>(row)] = range;
    block.all.cover(range);
  }
  return block;
}

KeyRange AttentionProblem::seen(std::int64_t sample) const {
  KeyRange all;
  for (std::int64_t query = 0; query < queries; ++query) all.cover(visible(sample, query));
  return all;
}

bool QueryBlock::sees(KeyRange keys) const {
  return std::any_of(visible.begin(), visible.begin() + rows, [&](KeyRange range) { return range.meets(keys); });
}

}  // namespace megatron
