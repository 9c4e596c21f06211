#include "checkpoint/slice_stream.h"

#include <algorithm>

namespace megatron {

namespace {

constexpr std::int64_t kBufferElements = std::int64_t{128} << 10;  // 512 KiB, which is in the cache when it is written

}  // namespace

SliceStream::SliceStream(const CheckpointReader& reader, std::vector<TensorSlice> pieces)
    : reader_(reader), pieces_(std::move(pieces)), begins_{0} {
  for (const TensorSlice& piece : pieces_) begins_.push_back(begins_.back() + piece.count);
}

std::size_t SliceStream::piece_at(std::int64_t position) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<std::size_t>(behind - begins_.begin()) - 1;
}

std::span<const float> SliceStream::read(StateKind kind, std::int64_t position) {
  const std::int64_t end = std::min(position + kBufferElements, elements());
  buffer_.resize(static_cast<std::size_t>(std::min(kBufferElements, elements())));
  std::vector<TensorSlice> parts;
  for (std::size_t piece = piece_at(position); piece < pieces_.size() && begins_[piece] < end; ++piece) {
    const std::int64_t first = std::max(position, begins_[piece]), stop = std::min(end, begins_[piece + 1]);
    if (first == stop) continue;
    TensorSlice& part = parts.emplace_back(pieces_[piece]);
    part.first += first - begins_[piece];
    part.count = stop - first;
    part.value = Tensor(buffer_.data() + (first - position), {part.count}, DType::f32);
    part.m = part.v = {};
  }
  reader_.read_numbers(kind, parts, open_);
  return std::span(buffer_).first(static_cast<std::size_t>(end - position));
}

}  // namespace megatron
