// AddedTokens: the added tokens of a tokenizer.json, and where a text has them, as Hugging Face's tokenizers finds
// them: from left to right, the longest of those that begin at a place. A token that is found and then not taken (a
// special token of a text, a part of a longer word) still hides those inside it. Immutable: safe to use from several
// threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      ///< of no text, unless special tokens are asked for
  bool normalized = false;   ///< looked for after the others, in the text that the normalizer made
  bool single_word = false;  ///< only where no word continues before or after it
  bool lstrip = false;       ///< takes the spaces in front of it as well
  bool rstrip = false;       ///< takes the spaces after it as well
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// Calls part(text) for what lies between tokens, which is not empty, and token(id), in their order.
  template <class Part, class Token>
  void split(std::string_view text, bool special_tokens, const Part& part, const Token& token) const {
    std::size_t done = 0;
    if (empty()) return text.empty() ? void() : part(text);
    for (Match match = next(text, 0); match.token != nullptr; match = next(text, match.end)) {
      if (!is_taken(text, match, special_tokens)) continue;
      const auto [begin, end] = widened(text, match, done);
      if (done < begin) part(text.substr(done, begin - done));
      token(match.token->id);
      done = end;
    }
    if (done < text.size()) part(text.substr(done));
  }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    std::size_t begin = 0, end = 0;
  };
  struct Place {
    std::size_t begin, end;
  };
  Match next(std::string_view text, std::size_t from) const;
  const AddedToken* longest_at(std::string_view text) const;
  static bool is_taken(std::string_view text, const Match& match, bool special_tokens);
  static Place widened(std::string_view text, const Match& match, std::size_t done);

  std::vector<AddedToken> tokens_;               // in the order of their bytes
  std::array<std::uint32_t, 257> first_byte_{};  // where those with this first byte begin in tokens_
};

}  // namespace megatron
