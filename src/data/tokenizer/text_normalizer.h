// TextNormalizer: the normalizer of a tokenizer.json, step by step as Hugging Face's tokenizers does them: Unicode's
// normal forms, lower case, SentencePiece's table of characters (Precompiled), runs of spaces that become one, spaces
// at the ends, and BERT's steps. Holds memory that is used again: one for each Encoder. Internal to src/data/tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/character_map.h"
#include "data/tokenizer/part_borders.h"

namespace megatron {

struct NormalizerStep {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lower_case,
    character_map,
    replace_spaces,
    strip,
    clean,             ///< BERT's: no control characters, and ' ' for each white space
    space_ideographs,  ///< BERT's: ' ' around each
    strip_marks,       ///< accents, after nfd
  };
  Kind kind = Kind::nfc;
  CharacterMap map = {};             ///< character_map
  std::string content = {};          ///< replace_spaces: what two spaces or more become
  bool left = false, right = false;  ///< strip: at which ends
};

/// Bytes that are not UTF-8: U+FFFD in their place, or as they are. For character maps they must be replaced.
enum class InvalidBytes { replaced, kept };

class TextNormalizer {
 public:
  explicit TextNormalizer(const std::vector<NormalizerStep>& steps, InvalidBytes invalid = InvalidBytes::replaced)
      : steps_(steps), invalid_(invalid) {}

  /// A view of `text` or of memory that the next call overwrites. The borders of the text
  /// become those of the normalized text.
  std::string_view normalized(std::string_view text, PartBorders& borders);
  std::string_view normalized(std::string_view text) {
    PartBorders none(SpecialTokens::text);
    return normalized(text, none);
  }

 private:
  const std::vector<NormalizerStep>& steps_;
  InvalidBytes invalid_;
  std::string buffers_[3];
};

/// Those of `tokens` that are looked for in a text as it is or, if `normalized`, in what the normalizer makes of it,
/// and of their own names. `end_of_document` is special whatever its file says.
AddedTokens added_tokens(const std::vector<AddedToken>& tokens, std::int32_t end_of_document,
                         const std::vector<NormalizerStep>& normalizer, bool normalized);

/// Whether a character is White_Space, as Rust's char::is_whitespace has it.
bool has_white_space_property(std::uint32_t code_point);

/// The bytes of the extended grapheme cluster that `text`, which is not empty and UTF-8, begins with, as far as it
/// matters here: a cluster of 6 bytes or more may be told as several.
std::size_t cluster_bytes(std::string_view text);

}  // namespace megatron
