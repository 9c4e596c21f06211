// Rows that pad tables of words to the padded vocabulary: no token reads them, and exports have none of them.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/store/difference.h"

namespace megatron {

/// Makes those of `tensors`, which compares the values of two checkpoints, equal that differ in padding rows alone.
/// Returns their number. Reads the other rows of these tensors anew.
std::int64_t leave_out_padding(const CheckpointReader& a, const CheckpointReader& b,
                               std::vector<TensorDifference>& tensors);

}  // namespace megatron
