// Prompts: from a file's lines to texts, and from a text to the tokens that a model's context has room for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace megatron {

/// One prompt per line of `contents`: the line itself, or "prompt", or else "text", of the JSON object that a line with
/// '{' at its beginning is. Every line counts, also an empty one. `name` is the file's, for Error(data) "NAME:LINE:
/// ..." about what is no UTF-8 or JSON, or has neither key. Error(data) if there is no line.
std::vector<std::string> parse_prompts(std::string_view contents, const std::string& name);

struct PromptRules {
  bool begin_token = true;  ///< the end-of-document token comes first, as before every document in training
  SpecialTokens special = SpecialTokens::text;
};

/// Texts to tokens. Must not outlive its tokenizer.
class PromptEncoder {
 public:
  PromptEncoder(const Tokenizer& tokenizer, const PromptRules& rules);

  /// 1 to `longest` tokens. Error(data) that begins with `name` if the text is no UTF-8, has more tokens (unless
  /// `truncate`, which leaves its beginning out), or is empty where no begin token comes first.
  std::vector<std::int32_t> encode(const std::string& text, std::int64_t longest, bool truncate,
                                   const std::string& name);

 private:
  std::int32_t begin_;
  PromptRules rules_;
  std::unique_ptr<Encoder> encoder_;
};

}  // namespace megatron
