// SplitPart: the part of a token set that belongs to one of training, validation and test.
#pragma once

#include <cstdint>
#include <string>

#include "data/shards/token_dataset.h"

namespace megatron {

struct SplitPart {
  TokenDataset* source = nullptr;
  std::uint64_t first_token = 0, tokens = 0;           ///< tokens [first_token, first_token + tokens)
  std::uint64_t first_document = 0, end_document = 0;  ///< the same as documents; not with `cut_by_tokens`
  bool cut_by_tokens = false;                          ///< may begin and end within a document
  double weight = 1;                                   ///< its set's in the split's blend
  std::string name = {};                               ///< its set's, if the blend's have names
  std::uint64_t seed = 0;                              ///< for samples of sentences: sets do not go in step
  std::uint64_t samples = 0;                           ///< in one pass over it alone
};

}  // namespace megatron
