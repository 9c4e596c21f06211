#include "inference/decoding/pass_integers.h"

#include <algorithm>

namespace megatron {

PassTensors allocate_pass(Arena& arena, const PassExtents& extents) {
  const auto make = [&](const char* what, Shape shape) { return arena.allocate(what, shape, DType::i32); };
  PassTensors tensors;
  tensors.tokens = make("tokens", {extents.rows, extents.samples});
  tensors.position_ids = make("position ids", {extents.rows, extents.samples});
  tensors.offsets = make("offsets", {extents.samples});
  if (extents.stream == Stream::encoder) tensors.lengths = make("lengths", {extents.samples});
  if (extents.wanted > 0) tensors.wanted = make("rows with logits", {extents.wanted});
  return tensors;
}

PassIntegers::PassIntegers(const DecoderPass& pass, const DecoderSizes& sizes) {
  const std::size_t b = pass.tokens.size();
  internal_check(b > 0 && pass.offsets.size() == b && pass.wanted.size() == b,
                 "tokens, an offset and a number of logits for each sample of a pass", b, pass.offsets.size(),
                 pass.wanted.size());
  const bool encodes = pass.stream == Stream::encoder;
  const std::int64_t capacity = encodes ? sizes.encoder_rows : sizes.capacity;
  extents = {pass.stream, 1, static_cast<std::int64_t>(b), 0};
  for (const auto& sample : pass.tokens) {
    extents.rows = std::max(extents.rows, static_cast<std::int64_t>(sample.size()));
    lengths.push_back(static_cast<std::int32_t>(sample.size()));
  }
  tokens.assign(static_cast<std::size_t>(extents.rows) * b, 0);
  position_ids = tokens;
  for (std::size_t i = 0; i < b; ++i) add(pass, capacity, i);
  longest = std::min(longest, capacity);
  extents.wanted = static_cast<std::int64_t>(wanted.size());
  internal_check(extents.rows <= (encodes ? sizes.encoder_rows : sizes.first_rows) &&
                     extents.samples <= (encodes ? sizes.encoder_samples : sizes.samples) &&
                     extents.wanted <= (encodes ? 0 : sizes.logits_rows) &&
                     pass.first_sample + extents.samples <= sizes.samples,
                 "a pass larger than the decoder was made for", extents.rows, extents.samples, extents.wanted,
                 pass.first_sample, sizes.samples);
}

void PassIntegers::add(const DecoderPass& pass, std::int64_t capacity, std::size_t sample) {
  const std::size_t b = pass.tokens.size(), count = pass.tokens[sample].size();
  const std::int64_t offset = pass.offsets[sample];
  internal_check(count > 0 && offset + static_cast<std::int64_t>(count) <= capacity,
                 "a pass without tokens, or past the end of the cache", count, offset, capacity);
  for (std::int64_t row = 0; row < extents.rows; ++row) {
    const std::size_t at = static_cast<std::size_t>(row) * b + sample;
    if (row < static_cast<std::int64_t>(count)) tokens[at] = pass.tokens[sample][static_cast<std::size_t>(row)];
    position_ids[at] = static_cast<std::int32_t>(std::min(offset + row, capacity - 1));
  }
  for (std::size_t row = count - static_cast<std::size_t>(pass.wanted[sample]); row < count; ++row) {
    wanted.push_back(static_cast<std::int32_t>(row * b + sample));
  }
  longest = std::max(longest, offset + extents.rows);
}

}  // namespace megatron
