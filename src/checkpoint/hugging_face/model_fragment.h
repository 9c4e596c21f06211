// The part of an input file that trains an imported model, for people to copy: its [model] and [moe].
#pragma once

#include <string>

#include "config/schema/config.h"

namespace megatron {

/// `config` is that of the import, resolved. The comments above the keys say what else a run from the checkpoint
/// `target` needs, and how to encode its texts with the tokenizer of this name and file; without a name they do not.
std::string model_fragment(const Config& config, const std::string& target, const std::string& tokenizer,
                           const std::string& vocab_file);

}  // namespace megatron
