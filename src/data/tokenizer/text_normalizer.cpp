#include "data/tokenizer/text_normalizer.h"

#include <algorithm>

#include "base/text/utf8.h"
#include "data/unicode/bert_characters.h"
#include "data/unicode/character_classes.h"
#include "data/unicode/normalization.h"
#include "data/unicode/unicode_tables.h"

namespace megatron {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kWholeCluster = 6;  ///< clusters of fewer bytes are looked up as a whole

bool is_jamo(std::uint32_t c) {
  return c - 0x1100 < 0x100 || c - 0xA960 < 0x20 || c - 0xAC00 < 0x2BA4 || c - 0xD7B0 < 0x50;
}

bool begins_with_white_space(std::string_view text) {
  return !text.empty() && has_white_space_property(first_code_point(text.substr(0, 4)).value);
}

std::string_view stripped(std::string_view text, bool left, bool right, PartBorders& borders) {
  std::size_t before = 0;
  while (left && before < text.size()) {
    const CodePoint c = first_code_point(text.substr(before, 4));
    if (!has_white_space_property(c.value)) break;
    before += c.bytes;
  }
  text.remove_prefix(before);
  borders.remove_front(before);
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!has_white_space_property(first_code_point(text.substr(at)).value)) break;
    text = text.substr(0, at);
  }
  borders.remove_after(text.size());
  return text;
}

/// change(character, made) appends what becomes of each.
template <class Change>
std::string_view changed(std::string_view text, std::string& made, const Change& change) {
  made.clear();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at, 4));
    if (c.bytes == 0) {
      made += text[at++];
      continue;
    }
    change(c.value, made);
    at += c.bytes;
  }
  return made;
}

std::string_view in_lower_case(std::string_view text, std::string& made) {
  return changed(text, made, [](std::uint32_t c, std::string& to) {
    BertCharacters::instance().lower(c, [&](std::uint32_t small) { append_utf8(to, small); });
  });
}

std::string_view cleaned(std::string_view text, std::string& made) {
  return changed(text, made, [](std::uint32_t c, std::string& to) {
    const std::uint8_t bits = BertCharacters::instance().of(c);
    if ((bits & kBertControl) == 0) append_utf8(to, (bits & kBertSpace) != 0 ? ' ' : c);
  });
}

std::string_view with_spaced_ideographs(std::string_view text, std::string& made) {
  return changed(text, made, [](std::uint32_t c, std::string& to) {
    const bool spaced = (BertCharacters::instance().of(c) & kBertIdeograph) != 0;
    if (spaced) to += ' ';
    append_utf8(to, c);
    if (spaced) to += ' ';
  });
}

std::string_view without_marks(std::string_view text, std::string& made) {
  return changed(text, made, [](std::uint32_t c, std::string& to) {
    if ((BertCharacters::instance().of(c) & kBertMark) == 0) append_utf8(to, c);
  });
}

void replace_spaces(std::string_view text, const std::string& content, std::string& made, PartBorders& borders) {
  made.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t spaces = std::min(text.find_first_not_of(' ', at), text.size()) - at;
    const std::size_t bytes = std::max<std::size_t>(spaces, 1);
    borders.move(at + bytes - 1, made.size());
    made.append(bytes >= 2 ? std::string_view(content) : text.substr(at, 1));
    at += bytes;
  }
  borders.end_moves(made.size());
}

std::string_view valid(std::string_view text, std::string& made) {
  if (first_invalid_utf8(text) == text.size()) return text;
  made.clear();
  while (!text.empty()) {
    const std::size_t end = first_invalid_utf8(text);
    made.append(text.substr(0, end));
    if (end == text.size()) break;
    made.append(kReplacement);
    text.remove_prefix(end + 1);
  }
  return made;
}

}  // namespace

bool has_white_space_property(std::uint32_t code_point) {
  return CharacterClasses::instance().of(code_point) == CharacterClass::space;
}

std::size_t cluster_bytes(std::string_view text) {
  const CodePoint first = first_code_point(text.substr(0, 4));
  if (first.value == '\r') return text.starts_with("\r\n") ? 2 : 1;
  std::size_t bytes = first.bytes;
  if (contains(grapheme_controls(), first.value)) return bytes;
  bool joins = contains(grapheme_prefixes(), first.value), jamo = is_jamo(first.value);
  while (bytes < text.size() && bytes < kWholeCluster) {
    const CodePoint next = first_code_point(text.substr(bytes, 4));
    const bool extends = CharacterClasses::instance().extends_cluster(next.value), next_jamo = is_jamo(next.value);
    if (!extends && !(jamo && next_jamo) && !(joins && !contains(grapheme_controls(), next.value))) break;
    joins = !extends && contains(grapheme_prefixes(), next.value);
    jamo = next_jamo;
    bytes += next.bytes;
  }
  return bytes;
}

namespace {

/// A cluster of fewer than 6 bytes becomes what the shortest string becomes that it begins with, and what is after that
/// is lost; else each character is looked up alone.
std::string_view mapped(const CharacterMap& map, std::string_view text, std::string& made) {
  made.clear();
  while (!text.empty()) {
    std::size_t bytes = 1;
    const auto ascii = [&](std::size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
    if (!ascii(0) || (text.size() > 1 && (!ascii(1) || text[0] == '\r'))) bytes = cluster_bytes(text);
    std::string_view cluster = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (bytes < kWholeCluster) {
      if (const auto found = map.shortest(cluster)) {
        made += *found;
        continue;
      }
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, first_code_point(cluster.substr(0, 4)).bytes);
      made += map.shortest(character).value_or(character);
      cluster.remove_prefix(character.size());
    }
  }
  return made;
}

}  // namespace

std::string_view TextNormalizer::normalized(std::string_view text, PartBorders& borders) {
  std::size_t next = 0;
  const auto apply = [&](std::string& buffer, const auto& make) {
    const std::string_view made = make(text, buffer);
    borders.follow(text, made, make);
    if (made.data() == buffer.data()) next = 1 - next;  // else the text is still where it was
    text = made;
  };
  if (invalid_ == InvalidBytes::replaced) apply(buffers_[2], valid);
  next = 0;
  stripped_front_ = false;
  const bool begins_with_space = begins_with_white_space(text);  // else a character's rest is still in front
  const auto in_form = [](NormalForm form) {
    return [form](std::string_view part, std::string& made) { return normalized_text(part, form, made); };
  };
  for (const NormalizerStep& step : steps_) {
    std::string& buffer = buffers_[next];
    switch (step.kind) {
      case NormalizerStep::Kind::strip:
        stripped_front_ |= begins_with_space && step.left && begins_with_white_space(text);
        text = stripped(text, step.left, step.right, borders);
        break;
      case NormalizerStep::Kind::nfc: apply(buffer, in_form(NormalForm::c)); break;
      case NormalizerStep::Kind::nfd: apply(buffer, in_form(NormalForm::d)); break;
      case NormalizerStep::Kind::nfkc: apply(buffer, in_form(NormalForm::kc)); break;
      case NormalizerStep::Kind::nfkd: apply(buffer, in_form(NormalForm::kd)); break;
      case NormalizerStep::Kind::lower_case: apply(buffer, in_lower_case); break;
      case NormalizerStep::Kind::clean: apply(buffer, cleaned); break;
      case NormalizerStep::Kind::space_ideographs: apply(buffer, with_spaced_ideographs); break;
      case NormalizerStep::Kind::strip_marks: apply(buffer, without_marks); break;
      case NormalizerStep::Kind::character_map:
        apply(buffer, [&](std::string_view part, std::string& made) { return mapped(step.map, part, made); });
        break;
      case NormalizerStep::Kind::replace_spaces:
        replace_spaces(text, step.content, buffer, borders);
        text = buffer;
        next = 1 - next;
    }
  }
  return text;
}

AddedTokenSets::AddedTokenSets(const std::vector<AddedToken>& tokens, std::int32_t end_of_document,
                               const std::vector<NormalizerStep>& normalizer) {
  std::vector<AddedToken> plain, normalized;
  TextNormalizer names(normalizer, InvalidBytes::kept);
  for (AddedToken token : tokens) {
    if (token.normalized) token.content = std::string(names.normalized(token.content));
    if (token.id == end_of_document) token.special = true;
    if (!token.content.empty()) (token.normalized ? normalized : plain).push_back(std::move(token));
  }
  plain_ = AddedTokens(std::move(plain));
  normalized_ = AddedTokens(std::move(normalized));
}

}  // namespace megatron
