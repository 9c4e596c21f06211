// Gpt2Tokenizer: byte-level BPE with the vocabulary of two files (bpe_vocabulary.h) or of one tokenizer.json or
// file of ranks (rank_file.h), which may be of other models than GPT-2. Byte-exact: any text, valid UTF-8 or not, is
// decoded to what was encoded (but for a space in front, a normalizer and spaces around added tokens, where
// tokenizer.json asks for them). <|endoftext|> in a text is ordinary text; its id ends documents.
#pragma once

#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/merge_rules.h"

namespace megatron {

class Gpt2Tokenizer final : public Tokenizer {
 public:
  /// Without merge_file the other is a tokenizer.json, and `rows` as there. Where a folder's settings say more than its
  /// two files do, these become the tokenizer.json that says all of it. Errors as read_bpe_vocabulary.
  Gpt2Tokenizer(const std::string& vocab_file, const std::string& merge_file, std::int64_t rows = 0,
                const FolderSettings& folder = {});

  std::string name() const override { return "gpt2"; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(vocabulary_.tokens.size()); }
  std::int32_t eod_id() const override { return vocabulary_.end_of_text; }
  std::uint64_t hash() const override { return hash_; }
  using Tokenizer::make_encoder;
  std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string eod_text() const override { return vocabulary_.tokens[static_cast<std::size_t>(eod_id())]; }
  std::vector<TokenizerFile> files() const override;
  std::string tokenizer_json() const override;

 private:
  BpeVocabulary vocabulary_;
  MergeRules rules_;
  AddedTokenSets added_;
  std::uint64_t hash_ = 0;
};

}  // namespace megatron
