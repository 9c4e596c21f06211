// ByteTokenizer: every byte is its own id (0 .. 255), and 256 ends a document. Needs no vocabulary file and can encode
// anything; text costs a token a byte. For Hugging Face it is a byte-level BPE without merges, and 256 is
// <|endoftext|>.
#pragma once

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer();
  std::string name() const override { return "byte"; }
  std::int64_t vocab_size() const override { return 257; }
  std::int32_t eod_id() const override { return kEnd; }
  std::uint64_t hash() const override;
  using Tokenizer::make_encoder;
  std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string eod_text() const override;
  std::string tokenizer_json() const override;

 private:
  static constexpr std::int32_t kEnd = 256;
  AddedTokens added_;  // the end of a document
};

}  // namespace megatron
