// Tokens to text that appears piece by piece: up to a stop text, and in whole characters where a piece must be UTF-8.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "inference/decoding/sampling.h"

namespace megatron {

/// The text of one sample, which continues that of its prompt. Refers to the tokenizer.
class TextPieces {
 public:
  TextPieces(const Tokenizer& tokenizer, std::vector<std::string> stops, std::span<const std::int32_t> prompt);

  /// Takes one more token; returns the text that is certain to be before any stop text. Nothing once stopped.
  std::string add(std::int32_t token);
  /// Returns the text that was held back; called when no more tokens come.
  std::string rest() { return stops_.rest(); }
  bool stopped() const { return stops_.stopped(); }

 private:
  bool has_no_text(std::int32_t token) const;

  const Tokenizer& tokenizer_;
  StopTexts stops_;
  std::int32_t begin_token_;
  bool begins_;  // no token so far has a text: the next one begins it, without the space that separates words
};

/// The whole text of these tokens, up to a stop text.
std::string text_of(const Tokenizer& tokenizer, const std::vector<std::string>& stops,
                    std::span<const std::int32_t> prompt, std::span<const std::int32_t> tokens);

/// Bytes to pieces of valid UTF-8: a character that is not complete waits for its other bytes, and what is none becomes
/// U+FFFD, each byte one.
class Utf8Pieces {
 public:
  std::string add(std::string_view bytes);
  std::string rest();

 private:
  std::string held_;
};

}  // namespace megatron
