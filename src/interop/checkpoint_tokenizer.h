// The tokenizer that belongs to a checkpoint, on its way into what is made of that.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace megatron {

/// If its files were kept, in the checkpoint's folder or its run's. nullptr if not; where they are damaged or another
/// one's, with a warning on standard error. ErrorKind::filesystem if they cannot be read.
std::unique_ptr<Tokenizer> tokenizer_beside(const CheckpointReader& source);

/// Into a folder that has none yet, durably.
void write_tokenizer_files(const Tokenizer& tokenizer, const std::string& folder);

/// From next to the source, if there is one.
void carry_tokenizer(const CheckpointReader& source, const std::string& folder);

}  // namespace megatron
