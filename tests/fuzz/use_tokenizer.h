// What is true of every tokenizer and text, for the fuzz targets that make one.
#pragma once

#include <string_view>
#include <vector>

#include "fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

namespace megatron::fuzz {

inline void use_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens special : {SpecialTokens::text, SpecialTokens::tokens}) {
    const auto encoder = tokenizer.make_encoder(special);
    std::vector<std::int32_t> ids, again;
    encoder->encode(text, ids);
    encoder->encode(text, again);  // out of its memory
    require(ids == again, "other ids for the same text");
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
      require(special == SpecialTokens::tokens || id != tokenizer.eod_id(), "a text that ends a document");
    }
    tokenizer.decode(ids);
  }
}

}  // namespace megatron::fuzz
