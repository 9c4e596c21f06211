// Prompts: from a file's lines to texts, and from a text to the tokens that a model has room for: those that a decoder
// continues, or what an encoder-decoder reads and the token that its own text begins with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// One prompt per line of `contents`: the line itself, or "prompt", or else "text", of the JSON object that a line with
/// '{' at its beginning is. Every line counts, also an empty one. `name` is the file's, for Error(data) "NAME:LINE:
/// ..." about what is no UTF-8 or JSON, or has neither key. Error(data) if there is no line.
std::vector<std::string> parse_prompts(std::string_view contents, const std::string& name);

struct PromptRules {
  bool begin_token = true;                 ///< a token comes first
  std::optional<std::int32_t> begin = {};  ///< that one; default: the end-of-document token, as in training
  SpecialTokens special = SpecialTokens::text;
  bool for_encoder = false;  ///< the prompt is what an encoder reads, between these tokens
  std::optional<std::int32_t> encoder_begin = {}, encoder_end = {};
  std::int32_t decoder_start = -1;  ///< the decoder's first token
};

/// Tokens that generation starts from.
struct Prompt {
  std::vector<std::int32_t> tokens;  ///< at least one
  std::vector<std::int32_t> encoder_tokens = {};
};

/// Texts to tokens. Must not outlive its tokenizer.
class PromptEncoder {
 public:
  PromptEncoder(const Tokenizer& tokenizer, const PromptRules& rules);

  /// A prompt of 1 to `longest` tokens, for an encoder or a decoder. Error(data) that begins with `name` if the text is
  /// no UTF-8, has more tokens (unless `truncate`, which leaves its beginning out), or is empty where no other token is
  /// added.
  Prompt encode(const std::string& text, std::int64_t longest, bool truncate, const std::string& name);

 private:
  std::vector<std::int32_t> tokens_of(const std::string& text, const std::string& name);

  std::int32_t begin_;
  PromptRules rules_;
  std::unique_ptr<Encoder> encoder_;
};

}  // namespace megatron
