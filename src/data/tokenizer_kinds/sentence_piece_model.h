// SentencePieceModel: a file of SentencePiece (spiece.model, tokenizer.model), of type unigram or BPE, read and
// checked. Ids are the places of the pieces.
//
// After the last piece come added tokens, then T5's sentinels that are asked for: control pieces, or user-defined ones
// if they are not special. The file that is kept has them, and fields for what SentencePiece does not know of them; any
// program with it reads the file. Errors are ErrorKind::data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/character_map.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

/// As the file numbers them.
enum class PieceType : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct SentencePieceModel {
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
  };
  std::vector<Piece> pieces;  ///< by id
  SpecialIds special;         ///< eos and unk are there
  bool unigram = true;        ///< else BPE
  bool byte_fallback = false, add_dummy_prefix = true, remove_extra_whitespaces = true;
  bool prefix_once =
      false;  ///< the dummy prefix stands in front of the whole text only, of no text after a special token
  std::vector<AddedToken> added;  ///< tokens that are not special, or look at what is around them
  std::string character_map;      ///< the normalizer's, valid; empty if it has none
  std::string normalizer;         ///< its bytes in the file, all of them
  std::string text;               ///< contents to keep: the file, with all that was added
};

/// choice.vocab_file with choice.extra_ids sentinels; `rows` and `alone` as there.
SentencePieceModel read_sentence_piece_model(const TokenizerChoice& choice);

}  // namespace megatron
