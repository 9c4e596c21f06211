#include "checkpoint/store/overlap.h"

#include <algorithm>
#include <array>

namespace megatron {

namespace {

/// Row-major flat index of a global position in a box.
std::int64_t flat_in(const Box& box, const std::array<std::int64_t, kMaxRank>& at) {
  std::int64_t flat = 0;
  for (int i = 0; i < box.extent.rank(); ++i)
    flat = flat * box.extent[i] + at[static_cast<std::size_t>(i)] - box.offset[i];
  return flat;
}

/// Appends, or lengthens the last segment.
void append(std::vector<CopySegment>& segments, std::size_t begin, const CopySegment& segment) {
  if (segments.size() > begin) {
    CopySegment& last = segments.back();
    if (last.from + last.count == segment.from && last.to + last.count == segment.to) {
      last.count += segment.count;
      return;
    }
  }
  segments.push_back(segment);
}

/// Narrows [low, high) of dimension 0 to the rows that a flat range of a box touches.
void clip_rows(const Box& box, std::int64_t first, std::int64_t count, std::int64_t& low, std::int64_t& high) {
  const std::int64_t row = box.extent.elements() / box.extent[0];
  low = std::max(low, box.offset[0] + first / row);
  high = std::min(high, box.offset[0] + (first + count - 1) / row + 1);
}

}  // namespace

void append_overlap(const TensorSlice& wanted, std::size_t index, const StoredSlice& stored,
                    std::vector<CopySegment>& segments) {
  if (wanted.count == 0 || stored.count == 0) return;
  const int rank = wanted.global_shape.rank();
  std::array<std::int64_t, kMaxRank> low{}, high{};
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    low[at] = std::max(wanted.box.offset[i], stored.box.offset[i]);
    high[at] = std::min(wanted.box.offset[i] + wanted.box.extent[i], stored.box.offset[i] + stored.box.extent[i]);
  }
  clip_rows(wanted.box, wanted.first, wanted.count, low[0], high[0]);
  clip_rows(stored.box, stored.first, stored.count, low[0], high[0]);
  for (int i = 0; i < rank; ++i) {
    if (low[static_cast<std::size_t>(i)] >= high[static_cast<std::size_t>(i)]) return;
  }

  const std::size_t begin = segments.size(), last = static_cast<std::size_t>(rank - 1);
  std::array<std::int64_t, kMaxRank> at = low;
  while (true) {
    // One row of the common box; both flat indices advance together along it, so both ranges clip it.
    const std::int64_t in_wanted = flat_in(wanted.box, at) - wanted.first;
    const std::int64_t in_stored = flat_in(stored.box, at) - stored.first;
    const std::int64_t skipped = std::max<std::int64_t>({0, -in_wanted, -in_stored});
    const std::int64_t end = std::min({high[last] - low[last], wanted.count - in_wanted, stored.count - in_stored});
    if (skipped < end) {
      append(segments, begin,
             {stored.position + in_stored + skipped, in_wanted + skipped, end - skipped, stored.file, index});
    }
    int i = rank - 2;
    for (; i >= 0; --i) {
      const auto dimension = static_cast<std::size_t>(i);
      if (++at[dimension] < high[dimension]) break;
      at[dimension] = low[dimension];
    }
    if (i < 0) return;
  }
}

std::vector<CopySegment> plan_slice(const TensorSlice& wanted, std::size_t index, const StoredTensor& tensor,
                                    const std::string& dataset) {
  verify(wanted.global_shape == tensor.shape, ErrorKind::checkpoint,
         "tensor {} has the shape {} in the checkpoint and {} in this segment", wanted.name, tensor.shape.to_string(),
         wanted.global_shape.to_string());
  const auto state = std::find(tensor.states.begin(), tensor.states.end(), dataset);
  std::vector<CopySegment> segments;
  for (const StoredSlice& stored : tensor.slices) {
    const std::size_t begin = segments.size();
    append_overlap(wanted, index, stored, segments);
    if (state == tensor.states.end()) continue;
    const std::int64_t position = stored.state_positions[static_cast<std::size_t>(state - tensor.states.begin())];
    for (std::size_t i = begin; i < segments.size(); ++i) segments[i].from += position - stored.position;
  }
  std::sort(segments.begin(), segments.end(), [](const CopySegment& a, const CopySegment& b) { return a.to < b.to; });
  std::int64_t filled = 0;
  for (const CopySegment& segment : segments) {
    verify(segment.to >= filled, ErrorKind::checkpoint, "tensor {}: elements are stored more than once", wanted.name);
    if (segment.to > filled) break;
    filled += segment.count;
  }
  verify(filled == wanted.count, ErrorKind::checkpoint,
         "tensor {}: element {} of this rank's {} (box {} + {}) is nowhere in the checkpoint", wanted.name, filled,
         wanted.count, wanted.box.offset.to_string(), wanted.box.extent.to_string());
  return segments;
}

}  // namespace megatron
