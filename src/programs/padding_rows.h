// Rows that pad tables of words to the padded vocabulary: no token reads them, and exports have none of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "checkpoint/store/checkpoint.h"

namespace megatron {

/// Rows of the tables of words without padding, by the tables' names: as many as the larger of two checkpoints'
/// vocabularies has tokens. Empty if neither checkpoint says how large its vocabulary is.
std::map<std::string, std::int64_t> rows_of_words(const CheckpointReader& a, const CheckpointReader& b);

}  // namespace megatron
