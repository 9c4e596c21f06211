// WordPieceTokenizer: BERT's, cased and uncased. A text becomes words (bert_characters.h), and a word the longest token
// that it begins with, then the longest "##" token, and so on; one that has no such pieces, or is very long, is [UNK].
//
// Ids are those of Hugging Face's tokenizers for valid UTF-8; other bytes are dropped as U+FFFD is. Decoding puts
// spaces between words, so it does not give the text back. [EOS] ends documents, and special tokens written in a text
// are text unless they are asked for.
#pragma once

#include "data/tokenizer/text_normalizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/word_piece_vocabulary.h"

namespace megatron {

class WordPieceTokenizer final : public Tokenizer {
 public:
  explicit WordPieceTokenizer(WordPieceVocabulary vocabulary);

  std::string name() const override { return vocabulary_.lower_case ? "bert-uncased" : "bert-cased"; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(vocabulary_.tokens.size()); }
  std::int32_t eod_id() const override { return vocabulary_.special.eos; }
  std::uint64_t hash() const override { return hash_; }
  using Tokenizer::make_encoder;
  std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string decode_next(std::int32_t id) const override;
  std::string eod_text() const override { return token(eod_id()); }
  SpecialIds special_ids() const override { return vocabulary_.special; }
  std::vector<std::uint8_t> continues() const override;
  std::vector<TokenizerFile> files() const override { return {{vocabulary_.file, vocabulary_.text}}; }
  std::string tokenizer_json() const override;

 private:
  const std::string& token(std::int32_t id) const { return vocabulary_.tokens[static_cast<std::size_t>(id)]; }

  WordPieceVocabulary vocabulary_;
  std::vector<NormalizerStep> normalizer_;
  AddedTokenSets added_;
  std::uint64_t hash_ = 0;
};

}  // namespace megatron
