// Checks that hold for every tokenizer and text, for the fuzz targets that make one.
#pragma once

#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "fuzz/fuzz.h"

namespace megatron::fuzz {

/// Special ids and words, which the makers of samples index by.
inline void use_special_ids(const Tokenizer& tokenizer) {
  const SpecialIds special = tokenizer.special_ids();
  const auto size = tokenizer.vocab_size();
  for (const std::int32_t id : {special.cls, special.sep, special.mask, special.pad, special.bos, special.eos,
                                special.unk, special.first_sentinel, tokenizer.eod_id()}) {
    require(id >= -1 && id < size, "a special id outside the vocabulary");
  }
  require(tokenizer.eod_id() >= 0, "no token that ends documents");
  require((special.sentinels > 0) == (special.first_sentinel >= 0), "sentinels without a first one");
  require(special.sentinel_step == 1 || special.sentinel_step == -1, "sentinels that are not in a row");
  const std::int64_t last = special.first_sentinel + std::int64_t{special.sentinels - 1} * special.sentinel_step;
  require(special.sentinels == 0 || (last >= 0 && last < size), "a sentinel outside the vocabulary");
  const std::vector<std::uint8_t> continues = tokenizer.continues();
  require(continues.empty() || continues.size() == static_cast<std::size_t>(size), "words of another vocabulary");
  for (std::int64_t id = special.first_sentinel, i = 0; i < special.sentinels; ++i, id += special.sentinel_step) {
    require(continues.empty() || continues[static_cast<std::size_t>(id)] == 0, "a sentinel that continues a word");
  }
}

inline void use_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  use_special_ids(tokenizer);
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
