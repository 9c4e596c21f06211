// Overlaps between the layout that saved and the layout that loads.
//
// Both sides cut a tensor the same way: a box of the global tensor, and of the box's elements in row-major order the
// range [first, first + count). What two such slices have in common is a list of segments that are contiguous in both.
// Pure arithmetic; knows no files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/tensor_slices.h"

namespace megatron {

/// `count` elements from element `from` of a rank file's dataset to element `to` of a wanted slice's tensors.
struct CopySegment {
  std::int64_t from = 0, to = 0, count = 0;
  int file = 0;
  std::size_t wanted = 0;  ///< index of the wanted slice
};

/// Appends the segments that `stored` can give to `wanted` (its index: `index`) of values, as long as possible,
/// ascending in both.
void append_overlap(const TensorSlice& wanted, std::size_t index, const StoredSlice& stored,
                    std::vector<CopySegment>& segments);

/// All segments of one wanted slice, of values or of a state that the tensor has. Throws Error(checkpoint) naming the
/// tensor unless they fill it exactly once.
std::vector<CopySegment> plan_slice(const TensorSlice& wanted, std::size_t index, const StoredTensor& tensor,
                                    const std::string& dataset = kValues);

}  // namespace megatron
