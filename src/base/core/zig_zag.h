// ZigZag: the rows of a sequence that one context rank has. A sequence is cut into 2 · ranks equal chunks, and rank r
// has the chunks r and 2 · ranks - 1 - r, in this order: under a causal mask every rank sees equally many pairs of
// query and key. Batches are cut by it, and layers put the rows of all ranks in order again.
#pragma once

#include <cstdint>

namespace megatron {

struct ZigZag {
  int ranks = 1, rank = 0;

  bool cuts() const { return ranks > 1; }
  std::int64_t chunks() const { return 2 * std::int64_t{ranks}; }  ///< in a sequence
  /// The number in the sequence of this rank's chunk i, 0 or 1.
  std::int64_t chunk(std::int64_t i) const { return i == 0 ? rank : chunks() - 1 - rank; }
  /// The place in the sequence of a row among the `rows` of this rank.
  std::int64_t position(std::int64_t row, std::int64_t rows) const {
    if (!cuts()) return row;
    const std::int64_t each = rows / 2;
    return chunk(row / each) * each + row % each;
  }

  bool operator==(const ZigZag&) const = default;
};

}  // namespace megatron
