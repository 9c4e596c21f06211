// Part of Optimizer: states in bf16. An update works on f32 copies of them in scratch, a chunk at a time, which are
// then rounded stochastically. What an update leaves as it is, a skipped one all, is rounded to the same bits.
#include <fmt/format.h>

#include <algorithm>

#include "base/core/philox.h"
#include "training/optimizer/optimizer.h"

namespace megatron {

namespace {

// Elements whose states are widened together: few launches for a device, and still in a CPU's caches.
constexpr std::int64_t kMostChunkElements = std::int64_t{256} << 10;

}  // namespace

// The same on all copies, whichever of a bucket's parts they own, and by which rules its parameters are updated.
void Optimizer::size_chunks() {
  internal_check(scratch_ != nullptr, "states in bf16 need scratch");
  for (const Parameter& parameter : store_.all()) {
    chunk_states_ = std::max(chunk_states_, static_cast<std::int64_t>(groups_.of(parameter).states().size()));
  }
  std::int64_t longest = 0;
  for (const FlatRange& range : owned_) longest = std::max(longest, range.count);
  for (const Bucket& bucket : store_.buckets()) {
    for (const FlatRange& range : bucket.owned) longest = std::max(longest, range.count);
  }
  chunk_elements_ = std::min(kMostChunkElements, longest);
}

Optimizer::Piece Optimizer::piece_of(const Parameter& parameter, const FlatRange& range, const Names& states) {
  internal_check(parameter.box.extent.rank() <= 2, "only vectors and matrices have states that are rounded");
  Piece piece{range, &parameter, {}};
  for (std::size_t i = 0; i < states.size(); ++i) {
    piece.sites[i] = hash_name(fmt::format("state {} of {}", states.all[i], parameter.name));
  }
  return piece;
}

// States of one chunk as an update changes them: f32.
StateTensors Optimizer::widened(const StateTensors& kept) const {
  if (!rounds_states()) return kept;
  StateTensors wide;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    wide[i] =
        wide_states_.slice(0, static_cast<std::int64_t>(i), 1).view({chunk_elements_}).slice(0, 0, kept[i].elements());
    ops_.copy(kept[i], wide[i]);
  }
  return wide;
}

// Keeps these states, parameter by parameter. Gaps between them have zeros and keep them.
void Optimizer::round(const Part& part, const FlatRange& chunk, const StateTensors& wide) {
  if (!rounds_states()) return;
  const StateTensors kept = states_in(section_of(chunk), chunk);
  auto piece = std::partition_point(part.pieces.begin(), part.pieces.end(),
                                    [&](const Piece& one) { return one.range.end() <= chunk.first; });
  for (; piece != part.pieces.end() && piece->range.first < chunk.end(); ++piece) {
    const Parameter& parameter = *piece->parameter;
    const Shape &offset = parameter.box.offset, &extent = parameter.box.extent;
    const int last = extent.rank() - 1;
    const std::int64_t first = std::max(piece->range.first, chunk.first);
    const FlatRange place{first - chunk.first, std::min(piece->range.end(), chunk.end()) - first};
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if (!wide[i]) continue;
      ops_.round_stochastically({.x = wide[i].slice(0, place.first, place.count),
                                 .y = kept[i].slice(0, place.first, place.count),
                                 .key = random_key(seed_, static_cast<std::uint64_t>(updates_) + 1, piece->sites[i]),
                                 .first = first - parameter.first,
                                 .columns = extent[last],
                                 .first_row = last == 0 ? 0 : offset[0],
                                 .first_column = offset[last]});
    }
  }
}

}  // namespace megatron
