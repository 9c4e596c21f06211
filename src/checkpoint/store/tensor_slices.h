// Checks of any slice that is saved or loaded; a violation is the program's own defect, found before a file is touched.
#pragma once

#include <cstddef>
#include <vector>

#include "distributed/parallel/parameter.h"

namespace megatron {

inline constexpr std::size_t kLongestTensorName = 512;

/// Box inside the shape, range inside the box, tensors f32, contiguous and of `count` elements, no v
/// without m.
void check_slices(const std::vector<TensorSlice>& slices);

}  // namespace megatron
