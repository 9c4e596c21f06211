#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/text/utf8.h"
#include "data/unicode/character_classes.h"

namespace megatron {

namespace {

/// The code point that ends where the text ends; 0 bytes if that is not valid UTF-8.
CodePoint last_code_point(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, text.size()); ++bytes) {
    const CodePoint c = first_code_point(text.substr(text.size() - bytes));
    if (c.bytes == bytes) return c;
  }
  return {};
}

bool is_space(CodePoint c) {
  return c.bytes > 0 && CharacterClasses::instance().of(c.value) == CharacterClass::space;
}

bool is_word(CodePoint c) {
  return c.bytes > 0 && CharacterClasses::instance().is_word(c.value);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    const auto before = [](char c, char d) { return static_cast<unsigned char>(c) < static_cast<unsigned char>(d); };
    return std::lexicographical_compare(a.content.rbegin(), a.content.rend(), b.content.rbegin(), b.content.rend(),
                                        before);
  });
  add_nodes();
  link_nodes();
}

void AddedTokens::add_nodes() {
  struct Group {
    std::uint32_t begin, end;  // the tokens whose last bytes lead to this node
  };
  std::vector<Group> level = {{0, static_cast<std::uint32_t>(tokens_.size())}}, next;
  nodes_.push_back({});
  for (std::size_t depth = 0, node = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    const auto byte_at = [&](std::uint32_t token) {
      return static_cast<unsigned char>(tokens_[token].content.rbegin()[static_cast<std::ptrdiff_t>(depth)]);
    };
    for (auto [begin, end] : level) {
      nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
      if (begin < end && tokens_[begin].content.size() == depth)
        nodes_[node].longest = begin + 1;  // the first of equals
      while (begin < end && tokens_[begin].content.size() == depth) ++begin;
      while (begin < end) {
        std::uint32_t stop = begin + 1;
        while (stop < end && byte_at(stop) == byte_at(begin)) ++stop;
        nodes_.push_back({.byte = byte_at(begin)});
        next.push_back({begin, stop});
        begin = stop;
      }
      ++node;
    }
  }
  nodes_.push_back({.first_child = static_cast<std::uint32_t>(nodes_.size())});  // where the last node's children end
  for (std::uint32_t node = nodes_[0].first_child; node < nodes_[1].first_child; ++node) {
    roots_[nodes_[node].byte] = node;
  }
}

void AddedTokens::link_nodes() {
  for (std::uint32_t parent = 0; parent + 1 < nodes_.size(); ++parent) {
    for (std::uint32_t node = nodes_[parent].first_child; node < nodes_[parent + 1].first_child; ++node) {
      std::uint32_t at = parent, next = 0;
      while (at != 0 && next == 0) next = child(at = nodes_[at].shorter, nodes_[node].byte);
      nodes_[node].shorter = next;
      if (nodes_[node].longest == 0) nodes_[node].longest = nodes_[next].longest;
    }
  }
}

/// 0 if there is none.
std::uint32_t AddedTokens::child(std::uint32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  const auto begin = nodes_.begin() + nodes_[node].first_child, end = nodes_.begin() + nodes_[node + 1].first_child;
  const auto found = std::lower_bound(begin, end, byte, [](const Node& a, unsigned char b) { return a.byte < b; });
  return found != end && found->byte == byte ? static_cast<std::uint32_t>(found - nodes_.begin()) : 0;
}

/// The longest token that begins at each place, the last place first.
std::vector<AddedTokens::Match> AddedTokens::find(std::string_view text) const {
  std::vector<Match> matches;
  std::uint32_t node = 0;
  for (std::size_t at = text.size(); at-- > 0;) {
    const auto byte = static_cast<unsigned char>(text[at]);
    std::uint32_t next = child(node, byte);
    while (next == 0 && node != 0) next = child(node = nodes_[node].shorter, byte);
    node = next;
    if (nodes_[node].longest == 0) continue;
    const AddedToken& token = tokens_[nodes_[node].longest - 1];
    matches.push_back({&token, at, at + token.content.size()});
  }
  return matches;
}

bool AddedTokens::is_taken(std::string_view text, const Match& match, const PartBorders& borders) {
  if (match.token->special && !borders.special(match.begin, match.end)) return false;
  if (!match.token->single_word) return true;
  return !is_word(last_code_point(text.substr(0, match.begin))) &&
         !is_word(first_code_point(text.substr(match.end, 4)));
}

/// With the spaces that the token takes, those of an earlier token excepted (`done`).
AddedTokens::TextRange AddedTokens::widened(std::string_view text, const Match& match, std::size_t done) {
  TextRange range{match.begin, match.end};
  if (match.token->lstrip) {
    while (range.begin > done) {
      const CodePoint c = last_code_point(text.substr(0, range.begin));
      if (!is_space(c)) break;
      range.begin -= c.bytes;
    }
    range.begin = std::max(range.begin, done);
  }
  if (match.token->rstrip) {
    for (CodePoint c; is_space(c = first_code_point(text.substr(range.end, 4)));) range.end += c.bytes;
  }
  return range;
}

}  // namespace megatron
