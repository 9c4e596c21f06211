// SentencePieceTables: a model of SentencePiece as encoding needs it, and the Encoders that use it. Ids are those of
// SentencePieceProcessor::Encode, of version 0.2.3. Immutable: safe to use from several threads.
#pragma once

#include <memory>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/character_map.h"
#include "data/tokenizer/piece_trie.h"
#include "data/tokenizer/token_index.h"
#include "data/tokenizer_kinds/best_pieces.h"
#include "data/tokenizer_kinds/sentence_piece_model.h"

namespace megatron {

struct SentencePieceTables {
  /// `model` and `added`, the tokens that are looked for first, must live as long.
  SentencePieceTables(const SentencePieceModel& model, const AddedTokens& added);
  std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const;
  const SentencePieceModel::Piece& piece(std::int32_t id) const { return model.pieces[static_cast<std::size_t>(id)]; }

  const SentencePieceModel& model;
  const AddedTokens& added;
  CharacterMap characters;
  PieceTrie user_defined;  ///< found in every text, before characters are replaced
  PieceTrie trie;          ///< unigram: all pieces that texts have
  TokenIndex ids;          ///< BPE: these, and unused pieces, which merges pass through
  ByteIds byte_ids{};
  float unknown_score = 0;
};

}  // namespace megatron
