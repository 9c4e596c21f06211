// AddedTokens: the added tokens of a tokenizer.json, and where a text has them, as Hugging Face's tokenizers finds
// them: from left to right, the longest of those that begin at a place. A token that is found and then not taken (a
// special token of a text, a part of a longer word) still hides those inside it. Time is linear in the text, whatever
// the tokens are. Immutable: safe to use from several threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/part_borders.h"

namespace megatron {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      ///< found in no text, unless special tokens are asked for
  bool normalized = false;   ///< looked for after the others, in the text that the normalizer made
  bool single_word = false;  ///< only where no word continues before or after it
  bool lstrip = false;       ///< takes the spaces in front of it as well
  bool rstrip = false;       ///< takes the spaces after it as well
  bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// Calls part(text, borders) for what lies between tokens, which is not empty, and token(id, part_of), in their
  /// order.
  template <class Part, class Token>
  void split(std::string_view text, const PartBorders& borders, const Part& part, const Token& token) const {
    const auto use = [&](std::size_t begin, std::size_t end) {
      part(text.substr(begin, end - begin), borders.within(begin, end - begin));
    };
    std::size_t done = 0, hidden = 0;  // `hidden`: where the last match ends
    if (empty()) return text.empty() ? void() : part(text, borders);
    const std::vector<Match> matches = find(text);
    for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
      if (match->begin < hidden) continue;
      hidden = match->end;
      if (!is_taken(text, *match, borders)) continue;
      const auto [begin, end] = widened(text, *match, done);
      if (done < begin) use(done, begin);
      token(match->token->id, borders.part_at(match->end - 1));
      done = end;
    }
    if (done < text.size()) use(done, text.size());
  }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    std::size_t begin = 0, end = 0;
  };
  struct TextRange {
    std::size_t begin, end;
  };
  std::vector<Match> find(std::string_view text) const;
  void add_nodes();
  void link_nodes();
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  static bool is_taken(std::string_view text, const Match& match, const PartBorders& borders);
  static TextRange widened(std::string_view text, const Match& match, std::size_t done);

  // Aho and Corasick's automaton of the tokens written backwards, for a text that is read from its end.
  struct Node {
    std::uint32_t first_child = 0;
    std::uint32_t shorter = 0;  // the longest other node that this one's bytes end with
    std::uint32_t longest = 0;  // number, from 1, of the longest token that these bytes end with; 0: none
    unsigned char byte = 0;     // the last one
  };
  std::vector<AddedToken> tokens_;          // in the order of their bytes read backwards
  std::vector<Node> nodes_;                 // by depth, so that children follow each other; 0 is the root
  std::array<std::uint32_t, 256> roots_{};  // children of the root
};

}  // namespace megatron
