#include "inference/generation/text_pieces.h"

#include <algorithm>
#include <utility>

#include "base/text/utf8.h"

namespace megatron {

namespace {

constexpr std::uint32_t kReplacement = 0xFFFD;

/// Bytes that a character has by its first one; 0 for a byte that begins none.
std::size_t length_by_first(char byte) {
  const auto first = static_cast<unsigned char>(byte);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

/// Whether more bytes may make a character of these, which are none.
bool may_become_character(std::string_view bytes) {
  if (bytes.size() >= length_by_first(bytes.front())) return false;
  std::string filled(bytes);  // a second byte that no first one excludes is either the lowest or the highest
  for (const char last : {'\x80', '\xBF'}) {
    filled.assign(bytes);
    filled.resize(length_by_first(bytes.front()), last);
    if (first_code_point(filled).bytes > 0) return true;
  }
  return false;
}

}  // namespace

TextPieces::TextPieces(const Tokenizer& tokenizer, std::vector<std::string> stops, std::span<const std::int32_t> prompt)
    : tokenizer_(tokenizer),
      stops_(std::move(stops)),
      begin_token_(tokenizer.special_ids().bos),
      begins_(std::all_of(prompt.begin(), prompt.end(), [&](std::int32_t token) { return has_no_text(token); })) {}

bool TextPieces::has_no_text(std::int32_t token) const {
  return token == tokenizer_.eod_id() || token == begin_token_;
}

std::string TextPieces::add(std::int32_t token) {
  if (token >= tokenizer_.vocab_size()) return {};  // a row of a larger table: no text
  const bool begins = std::exchange(begins_, begins_ && has_no_text(token));
  return stops_.add(begins ? tokenizer_.decode(std::span(&token, 1)) : tokenizer_.decode_next(token));
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<std::string>& stops,
                    std::span<const std::int32_t> prompt, std::span<const std::int32_t> tokens) {
  TextPieces pieces(tokenizer, stops, prompt);
  std::string text;
  for (const std::int32_t token : tokens) text += pieces.add(token);
  return text + pieces.rest();
}

std::string Utf8Pieces::add(std::string_view bytes) {
  held_ += bytes;
  std::string piece;
  std::string_view left = held_;
  while (!left.empty()) {
    const std::uint32_t length = first_code_point(left).bytes;
    if (length > 0) {
      piece += left.substr(0, length);
      left.remove_prefix(length);
    } else if (may_become_character(left)) {
      break;
    } else {
      append_utf8(piece, kReplacement);
      left.remove_prefix(1);
    }
  }
  held_ = std::string(left);
  return piece;
}

std::string Utf8Pieces::rest() {
  std::string piece;
  for (std::size_t i = 0; i < held_.size(); ++i) append_utf8(piece, kReplacement);
  held_.clear();
  return piece;
}

}  // namespace megatron
