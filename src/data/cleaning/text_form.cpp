#include "data/cleaning/text_form.h"

#include <xxhash.h>

#include <array>
#include <vector>

#include "base/text/utf8.h"
#include "data/unicode/bert_characters.h"
#include "data/unicode/character_classes.h"
#include "data/unicode/normalization.h"

namespace megatron {

namespace {

/// Appends words with one space between them.
class WordWriter {
 public:
  explicit WordWriter(std::string& out) : out_(out) { out_.clear(); }

  void separate() {
    separated_ = true;
    in_number_ = false;
  }
  void number() {
    if (in_number_) return;
    begin();
    out_ += '0';
    in_number_ = true;
  }
  /// ASCII letters, which are made lower case.
  void letters(std::string_view ascii) {
    begin();
    const std::size_t size = out_.size();
    out_.append(ascii);
    for (std::size_t i = size; i < out_.size(); ++i) out_[i] = static_cast<char>(out_[i] | 0x20);
  }
  void letter(std::uint32_t code_point) {
    begin();
    append_utf8(out_, code_point);
  }

 private:
  void begin() {
    if (separated_ && !out_.empty()) out_ += ' ';
    separated_ = in_number_ = false;
  }

  std::string& out_;
  bool separated_ = false, in_number_ = false;
};

enum class Ascii : std::uint8_t { none, letter, digit, space };  // none: separates words too

constexpr std::array<Ascii, 256> kAscii = [] {
  std::array<Ascii, 256> table{};
  for (std::size_t c = 0; c < 128; ++c) {
    if ((c | 0x20) - 'a' < 26) table[c] = Ascii::letter;
    if (c - '0' < 10) table[c] = Ascii::digit;
    if (c == ' ' || c - '\t' < 5) table[c] = Ascii::space;
  }
  return table;
}();

Ascii ascii_at(std::string_view text, std::size_t at) {
  return kAscii[static_cast<unsigned char>(text[at])];
}

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

/// A decomposed character that is not ASCII, or came from one that is not.
void add_character(std::uint32_t c, WordWriter& writer) {
  const BertCharacters& bert = BertCharacters::instance();
  const CharacterClasses& classes = CharacterClasses::instance();
  const std::uint8_t bits = bert.of(c);
  if ((bits & kBertMark) != 0) return;
  if (classes.of(c) == CharacterClass::digit) return writer.number();
  if (!classes.is_word(c) || (bits & kBertPunctuation) != 0) return writer.separate();
  const bool alone = (bits & kBertIdeograph) != 0;
  if (alone) writer.separate();
  bert.lower(c, [&writer](std::uint32_t lower) {
    if ((BertCharacters::instance().of(lower) & kBertMark) == 0) writer.letter(lower);
  });
  if (alone) writer.separate();
}

void write_words(std::string_view text, std::string& out) {
  WordWriter writer(out);
  std::vector<std::uint32_t> parts;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t first = at;
    while (at < text.size() && ascii_at(text, at) == Ascii::letter) ++at;
    if (at > first) {
      writer.letters(text.substr(first, at - first));
      continue;
    }
    if (is_ascii(text[at])) {
      if (ascii_at(text, at++) == Ascii::digit) {
        writer.number();
      } else {
        writer.separate();
      }
      continue;
    }
    const CodePoint point = first_code_point(text.substr(at));
    at += point.bytes > 0 ? point.bytes : 1;
    if (point.bytes == 0) {
      writer.separate();
      continue;
    }
    parts.clear();
    append_decomposition(point.value, parts);
    for (const std::uint32_t part : parts) add_character(part, writer);
  }
}

void write_without_spaces(std::string_view text, std::string& out) {
  out.clear();
  bool separated = false;
  const auto add = [&](std::string_view part) {
    if (separated && !out.empty()) out += ' ';
    separated = false;
    out.append(part);
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t first = at;
    while (at < text.size() && is_ascii(text[at]) && ascii_at(text, at) != Ascii::space) ++at;
    if (at > first) {
      add(text.substr(first, at - first));
      continue;
    }
    const CodePoint point = first_code_point(text.substr(at));
    if (point.bytes > 0 && CharacterClasses::instance().of(point.value) == CharacterClass::space) {
      separated = true;
    } else {
      add(text.substr(at, point.bytes > 0 ? point.bytes : 1));
    }
    at += point.bytes > 0 ? point.bytes : 1;
  }
}

}  // namespace

std::string_view text_in_form(std::string_view text, TextForm form, std::string& buffer) {
  switch (form) {
    case TextForm::as_is: return text;
    case TextForm::white_space: write_without_spaces(text, buffer); break;
    case TextForm::words: write_words(text, buffer); break;
  }
  return buffer;
}

TextHash hash_text(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

}  // namespace megatron
