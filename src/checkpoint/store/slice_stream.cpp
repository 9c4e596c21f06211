#include "checkpoint/store/slice_stream.h"

#include <algorithm>

namespace megatron {

namespace {

constexpr std::int64_t kBufferElements = std::int64_t{128} << 10;  // 512 KiB, which is in the cache when it is written

}  // namespace

SliceStream::SliceStream(const CheckpointReader& reader, const std::vector<TensorSlice>& slices,
                         const std::string& dataset)
    : reader_(reader), dataset_(dataset), slices_(slices_in(dataset, slices)), begins_{0} {
  for (const TensorSlice& slice : slices_) begins_.push_back(begins_.back() + slice.count);
}

std::size_t SliceStream::slice_at(std::int64_t position) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<std::size_t>(next - begins_.begin()) - 1;
}

std::span<const float> SliceStream::read(std::int64_t position) {
  const std::int64_t end = std::min(position + kBufferElements, elements());
  buffer_.resize(static_cast<std::size_t>(std::min(kBufferElements, elements())));
  std::vector<TensorSlice> parts;
  for (std::size_t slice = slice_at(position); slice < slices_.size() && begins_[slice] < end; ++slice) {
    const std::int64_t first = std::max(position, begins_[slice]), stop = std::min(end, begins_[slice + 1]);
    if (first == stop) continue;
    TensorSlice& part = parts.emplace_back(slices_[slice]);
    part.first += first - begins_[slice];
    part.count = stop - first;
    part.value = Tensor(buffer_.data() + (first - position), {part.count}, DType::f32);
  }
  reader_.read_numbers(dataset_, parts, open_);
  return std::span(buffer_).first(static_cast<std::size_t>(end - position));
}

}  // namespace megatron
