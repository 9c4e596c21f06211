// TextNormalizer: the normalizer of a tokenizer.json with a Unigram model, step by step as Hugging Face's tokenizers
// does them: NFC, SentencePiece's table of characters (Precompiled), runs of spaces that become one, and spaces at the
// ends. Holds memory that is used again: one for each Encoder. Internal to src/tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/character_map.h"

namespace megatron {

struct NormalizerStep {
  enum class Kind { nfc, character_map, replace_spaces, strip };
  Kind kind = Kind::nfc;
  CharacterMap map;                  ///< character_map
  std::string content;               ///< replace_spaces: what two spaces or more become
  bool left = false, right = false;  ///< strip: at which ends
};

class TextNormalizer {
 public:
  explicit TextNormalizer(const std::vector<NormalizerStep>& steps) : steps_(steps) {}

  /// A view of `text` or of memory that the next call overwrites. Bytes that are not UTF-8 are U+FFFD.
  std::string_view normalized(std::string_view text);

 private:
  std::string_view valid(std::string_view text);
  std::string_view mapped(const CharacterMap& map, std::string_view text, std::string& made) const;

  const std::vector<NormalizerStep>& steps_;
  std::string buffers_[3];
};

/// Whether a character is White_Space, as Rust's char::is_whitespace has it.
bool has_white_space_property(std::uint32_t code_point);

/// The bytes of the extended grapheme cluster that `text`, which is not empty and UTF-8, begins with, as far as it
/// matters here: a cluster of 6 bytes or more may be told as several.
std::size_t cluster_bytes(std::string_view text);

}  // namespace megatron
