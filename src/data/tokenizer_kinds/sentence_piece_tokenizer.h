// SentencePieceTokenizer: a model of SentencePiece, unigram or BPE, such as T5's, XLM-R's and Llama 2's.
//
// Decoding gives the normalized text. Special tokens (control pieces, sentinels, <unk>) that are asked for are found as
// transformers' T5Tokenizer finds them: the text between two of them is encoded separately.
#pragma once

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/sentence_piece_encoder.h"

namespace megatron {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(SentencePieceModel model);

  std::string name() const override { return "sentencepiece"; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(model_.pieces.size()); }
  std::int32_t eod_id() const override { return model_.special.eos; }
  std::uint64_t hash() const override { return hash_; }
  using Tokenizer::make_encoder;
  std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const override { return tables_.make_encoder(special); }
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string decode_next(std::int32_t id) const override;
  std::string eod_text() const override { return tables_.piece(eod_id()).text; }
  SpecialIds special_ids() const override { return model_.special; }
  std::vector<std::uint8_t> continues() const override;
  std::vector<TokenizerFile> files() const override { return {{kSentencePieceFile, model_.text}}; }
  std::string tokenizer_config() const override;
  std::string tokenizer_json() const override { return ""; }

 private:
  SentencePieceModel model_;
  AddedTokens added_;
  SentencePieceTables tables_;
  std::uint64_t hash_ = 0;
};

}  // namespace megatron
