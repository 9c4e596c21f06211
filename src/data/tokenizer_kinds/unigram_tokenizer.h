// UnigramTokenizer: a tokenizer.json with a Unigram model, in code of this program. A word (or a text, where the file
// has it so) becomes the pieces whose log probabilities have the largest sum.
//
// Ids are those of Hugging Face's tokenizers, with one exception: special tokens written in a text are text here,
// unless they are asked for. Decoding gives the normalized text.
#pragma once

#include "data/tokenizer/piece_trie.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unigram_vocabulary.h"

namespace megatron {

class UnigramTokenizer final : public Tokenizer {
 public:
  explicit UnigramTokenizer(UnigramVocabulary vocabulary);

  std::string name() const override { return "unigram"; }
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
  std::vector<TokenizerFile> files() const override { return {{kTokenizerFile, vocabulary_.text}}; }
  std::string tokenizer_json() const override { return vocabulary_.text; }

 private:
  const std::string& token(std::int32_t id) const { return vocabulary_.tokens[static_cast<std::size_t>(id)]; }

  UnigramVocabulary vocabulary_;
  AddedTokenSets added_;
  std::vector<bool> is_special_;  // by id
  PieceTrie trie_;
  double unknown_score_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace megatron
