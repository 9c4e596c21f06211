// TextNormalizer: the normalizer of a tokenizer.json, step by step as Hugging Face's tokenizers does them: Unicode's
// normal forms, lower case, SentencePiece's table of characters (Precompiled), runs of spaces that become one, spaces
// at the ends, and BERT's steps, for its added tokens. Holds memory that is used again: one for each Encoder.
// AddedTokenSets: added tokens, which are looked for before the normalizer or after it. Internal to src/data/tokenizer.
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
  /// Whether the last text began with spaces that were stripped.
  bool stripped_front() const { return stripped_front_; }

 private:
  const std::vector<NormalizerStep>& steps_;
  InvalidBytes invalid_;
  std::string buffers_[3];
  bool stripped_front_ = false;
};

/// A vocabulary's added tokens. Those that are `normalized` are looked for in what the normalizer makes of the text
/// between the others; their names are normalized, too.
class AddedTokenSets {
 public:
  /// `end_of_document` is special whatever its file says.
  AddedTokenSets(const std::vector<AddedToken>& tokens, std::int32_t end_of_document,
                 const std::vector<NormalizerStep>& normalizer);

  bool any_normalized() const { return !normalized_.empty(); }
  const AddedTokens& plain() const { return plain_; }

  /// As AddedTokens::split, with part(text, borders, at_front) for what the normalizer made: whether that begins where
  /// `text` does.
  template <class Part, class Token>
  void split(std::string_view text, const PartBorders& borders, TextNormalizer& normalizer, const Part& part,
             const Token& token) const {
    const auto normalize = [&](std::string_view raw, PartBorders inside) {
      const std::string_view made = normalizer.normalized(raw, inside);
      const bool at_front = raw.data() == text.data() && !normalizer.stripped_front();
      const auto use = [&](std::string_view rest, const PartBorders& of_rest) {
        part(rest, of_rest, at_front && rest.data() == made.data());
      };
      normalized_.split(made, inside, use, token);
    };
    plain_.split(text, borders, normalize, token);
  }

 private:
  AddedTokens plain_, normalized_;
};

/// Whether a character is White_Space, as Rust's char::is_whitespace has it.
bool has_white_space_property(std::uint32_t code_point);

/// The bytes of the extended grapheme cluster that `text`, which is not empty and UTF-8, begins with, as far as it
/// matters here: a cluster of 6 bytes or more may be told as several.
std::size_t cluster_bytes(std::string_view text);

}  // namespace megatron
