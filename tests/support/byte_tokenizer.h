// The tokenizer whose tokens are bytes, for tests that need any.
#pragma once

#include <memory>

#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron::test {

inline std::unique_ptr<Tokenizer> byte_tokenizer() {
  return make_tokenizer({.name = "byte", .vocab_file = {}, .merge_file = {}});
}

}  // namespace megatron::test
