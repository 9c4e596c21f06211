// --dry-run of megatron_generate: what each rank of a decoder needs.
#pragma once

#include <string>

#include "inference/decoding/decoder.h"

namespace megatron {

/// A table in bytes, a line for each rank of one copy of the model.
std::string decoder_report(const Config& config, const GridShape& shape, DType type, const DecoderSizes& sizes);

}  // namespace megatron
