// megatron_preprocess train-tokenizer: a vocabulary from text, where none can be downloaded.
#pragma once

#include "programs/preprocess_tools.h"

namespace megatron {

std::unique_ptr<PreprocessTool> make_train_tokenizer();

}  // namespace megatron
