#include "data/tokenizer/tokenizer_pipeline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/json_reader.h"
#include "data/tokenizer/base64.h"
#include "data/tokenizer/special_names.h"

namespace megatron {

namespace {

using Json = nlohmann::json;

struct PatternRow {
  SplitPattern pattern;
  std::string_view regex;
};
constexpr PatternRow kPatterns[] = {
    {SplitPattern::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::cl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::qwen2, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                          R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::o200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::tekken, R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                           R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                           R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

/// The normalizers that need no options, by the names of files.
constexpr std::pair<std::string_view, NormalizerStep::Kind> kNormalizers[] = {
    {"NFC", NormalizerStep::Kind::nfc},
    {"NFD", NormalizerStep::Kind::nfd},
    {"NFKC", NormalizerStep::Kind::nfkc},
    {"NFKD", NormalizerStep::Kind::nfkd},
    {"Lowercase", NormalizerStep::Kind::lower_case},
};

std::optional<NormalizerStep> plain_normalizer(std::string_view type) {
  for (const auto& [name, kind] : kNormalizers) {
    if (name == type) return NormalizerStep{.kind = kind};
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& what) {
  throw UnsupportedStep{what};
}

std::string type_of(const Json& step, const char* part) {
  const auto type = step.is_object() ? step.find("type") : step.end();
  if (type == step.end() || !type->is_string()) refuse(fmt::format("a {} without a type", part));
  return type->get<std::string>();
}

/// The steps of a part: none of null, those of a Sequence (which names them `list`) and of Sequences in it, or the one
/// that it is.
std::vector<Json> steps_of(std::string_view text, const char* part, const char* list) {
  constexpr std::size_t kDeepest = 64;
  try {
    JsonReader(text).skip_value(kDeepest);
  } catch (const JsonError&) {
    refuse(fmt::format("a {} of more than {} levels", part, kDeepest));
  }
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) refuse(fmt::format("a {} with a number that is too large", part));
  if (value.is_null()) return {};
  std::vector<Json> steps, rest = {value};  // the next one last
  while (!rest.empty()) {
    Json next = std::move(rest.back());
    rest.pop_back();
    if (type_of(next, part) != "Sequence") {
      steps.push_back(std::move(next));
      continue;
    }
    const auto found = next.find(list);
    if (found == next.end() || !found->is_array()) refuse(fmt::format("a {} of type Sequence without {}", part, list));
    rest.insert(rest.end(), found->rbegin(), found->rend());
  }
  return steps;
}

bool flag(const Json& step, const char* name, bool otherwise) {
  const auto found = step.find(name);
  if (found == step.end()) return otherwise;
  if (!found->is_boolean()) refuse(fmt::format("{} = {}", name, found->dump()));
  return found->get<bool>();
}

/// Refuses members that are not among these.
void expect_members(const Json& step, const char* part, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : step.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) refuse(fmt::format("{}.{}", part, key));
  }
}

SplitPattern pattern_of(const Json& split) {
  expect_members(split, "pre_tokenizer", {"type", "pattern", "behavior", "invert"});
  const std::string behavior = split.value("behavior", Json()).dump();
  const bool invert = flag(split, "invert", false);
  // The patterns match all of a text: it is the same whether matches are kept or what is between them is removed.
  const bool isolated = behavior == "\"Isolated\"" && !invert, others_removed = behavior == "\"Removed\"" && invert;
  if (!isolated && !others_removed) refuse(fmt::format("a Split with behavior {} and invert {}", behavior, invert));
  const Json pattern = split.value("pattern", Json());
  const Json regex = pattern.is_object() ? pattern.value("Regex", Json()) : Json();
  const auto found = regex.is_string() ? pattern_of_regex(regex.get<std::string>()) : std::nullopt;
  if (found) return *found;
  refuse(fmt::format("a Split by the pattern {}", pattern.dump()));
}

void check_byte_level(const Json& step, bool with_pattern) {
  expect_members(step, "pre_tokenizer", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool use_regex = flag(step, "use_regex", true);
  if (use_regex != with_pattern) refuse(fmt::format("pre_tokenizer.use_regex = {} here", use_regex));
}

}  // namespace

std::string_view regex_of(SplitPattern pattern) {
  const auto* const found = std::find_if(std::begin(kPatterns), std::end(kPatterns),
                                         [&](const PatternRow& row) { return row.pattern == pattern; });
  return found == std::end(kPatterns) ? std::string_view() : found->regex;
}

std::optional<SplitPattern> pattern_of_regex(std::string_view regex) {
  const auto* const found = std::find_if(std::begin(kPatterns), std::end(kPatterns),
                                         [&](const PatternRow& row) { return row.regex == regex; });
  return found == std::end(kPatterns) ? std::nullopt : std::optional(found->pattern);
}

std::vector<NormalizerStep> read_normalizer(std::string_view text) {
  std::vector<NormalizerStep> made;
  for (const Json& step : steps_of(text, "normalizer", "normalizers")) {
    const std::string type = type_of(step, "normalizer");
    std::optional<NormalizerStep> plain = plain_normalizer(type);
    if (!plain) refuse(fmt::format("a normalizer of type {}", type));
    made.push_back(std::move(*plain));
  }
  return made;
}

Json written_normalizer(const std::vector<NormalizerStep>& steps) {
  Json list = Json::array();
  for (const NormalizerStep& step : steps) {
    const auto* const row = std::find_if(std::begin(kNormalizers), std::end(kNormalizers),
                                         [&](const auto& known) { return known.second == step.kind; });
    list.push_back({{"type", row->first}});
  }
  if (list.size() < 2) return list.empty() ? Json() : list[0];
  return {{"type", "Sequence"}, {"normalizers", list}};
}

PreTokenizer read_pre_tokenizer(std::string_view text) {
  const std::vector<Json> steps = steps_of(text, "pre_tokenizer", "pretokenizers");
  if (steps.empty()) refuse("no pre_tokenizer");
  PreTokenizer made;
  bool has_pattern = false;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const std::string type = type_of(steps[i], "pre_tokenizer");
    if (i > 0) refuse(fmt::format("a pre_tokenizer of {} steps", steps.size()));
    if (type == "Split") {
      made.pattern = pattern_of(steps[i]);
      has_pattern = true;
    } else if (type == "Digits") {
      expect_members(steps[i], "pre_tokenizer", {"type", "individual_digits"});
      if (!flag(steps[i], "individual_digits", false)) refuse("Digits with individual_digits = false");
      made.pattern = SplitPattern::single_digits;
    } else {
      refuse(fmt::format("a pre_tokenizer of type {}", type));
    }
  }
  const Json& last = steps.back();
  const std::string type = type_of(last, "pre_tokenizer");
  if (type != "ByteLevel") refuse(fmt::format("a pre_tokenizer of type {}", type));
  check_byte_level(last, !has_pattern);
  made.add_prefix_space = flag(last, "add_prefix_space", true);
  if (made.add_prefix_space && steps.size() > 1) refuse("pre_tokenizer.add_prefix_space for each part of a text");
  return made;
}

void check_decoder(std::string_view text) {
  for (const Json& step : steps_of(text, "decoder", "decoders")) {
    const std::string type = type_of(step, "decoder");
    if (type != "ByteLevel") refuse(fmt::format("a decoder of type {}", type));
  }
}

void check_post_processor(std::string_view text) {
  for (const Json& step : steps_of(text, "post_processor", "processors")) {
    const std::string type = type_of(step, "post_processor");
    if (type == "ByteLevel" || type == "RobertaProcessing" || type == "BertProcessing") continue;
    if (type != "TemplateProcessing") refuse(fmt::format("a post_processor of type {}", type));
    std::size_t texts = 0;
    for (const Json& piece : step.value("single", Json::array())) texts += piece.contains("Sequence") ? 1 : 0;
    if (texts != 1) refuse(fmt::format("a TemplateProcessing that has the text {} times", texts));
  }
}

namespace {

/// The one step of this type that a part must be.
Json only_step(std::string_view text, const char* part, const char* list, const char* type) {
  const std::vector<Json> steps = steps_of(text, part, list);
  if (steps.size() != 1) refuse(fmt::format("a {} of {} steps", part, steps.size()));
  const std::string found = type_of(steps[0], part);
  if (found != type) refuse(fmt::format("a {} of type {}", part, found));
  return steps[0];
}

}  // namespace

BertNormalizer read_bert_normalizer(std::string_view text) {
  const Json step = only_step(text, "normalizer", "normalizers", "BertNormalizer");
  expect_members(step, "normalizer", {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertNormalizer made;
  made.clean = flag(step, "clean_text", true);
  made.ideographs = flag(step, "handle_chinese_chars", true);
  made.lower_case = flag(step, "lowercase", true);
  const bool as_case = step.value("strip_accents", Json()).is_null();
  made.strip_accents = as_case ? made.lower_case : flag(step, "strip_accents", true);
  return made;
}

void check_bert_pre_tokenizer(std::string_view text) {
  expect_members(only_step(text, "pre_tokenizer", "pretokenizers", "BertPreTokenizer"), "pre_tokenizer", {"type"});
}

bool read_word_piece_decoder(std::string_view text) {
  const Json step = only_step(text, "decoder", "decoders", "WordPiece");
  expect_members(step, "decoder", {"type", "prefix", "cleanup"});
  if (step.value("prefix", Json("##")) != "##") refuse(fmt::format("decoder.prefix = {}", step["prefix"].dump()));
  return flag(step, "cleanup", true);
}

namespace {

std::string text_of(const Json& step, const char* part, const char* name) {
  const auto found = step.find(name);
  if (found == step.end() || !found->is_string()) refuse(fmt::format("a {} without {}", part, name));
  return found->get<std::string>();
}

NormalizerStep normalizer_step(const Json& step) {
  const std::string type = type_of(step, "normalizer");
  if (std::optional<NormalizerStep> plain = plain_normalizer(type)) return std::move(*plain);
  NormalizerStep made;
  if (type == "Strip") {
    expect_members(step, "normalizer", {"type", "strip_left", "strip_right"});
    made.kind = NormalizerStep::Kind::strip;
    made.left = flag(step, "strip_left", true);
    made.right = flag(step, "strip_right", true);
  } else if (type == "Precompiled") {
    made.kind = NormalizerStep::Kind::character_map;
    const std::optional<std::string> bytes = from_base64(text_of(step, "Precompiled", "precompiled_charsmap"));
    std::optional<CharacterMap> map = bytes ? CharacterMap::read(*bytes) : std::nullopt;
    if (!map) refuse("a precompiled_charsmap that is damaged");
    made.map = std::move(*map);
  } else if (type == "Replace") {
    const Json pattern = step.value("pattern", Json());
    if (pattern != Json{{"Regex", " {2,}"}}) refuse(fmt::format("a Replace of the pattern {}", pattern.dump()));
    made.kind = NormalizerStep::Kind::replace_spaces;
    made.content = text_of(step, "Replace", "content");
    if (made.content.size() > kLongestReplacement) refuse(fmt::format("a Replace by {} bytes", made.content.size()));
  } else {
    refuse(fmt::format("a normalizer of type {}", type));
  }
  return made;
}

}  // namespace

std::vector<NormalizerStep> read_unigram_normalizer(std::string_view text) {
  std::vector<NormalizerStep> made;
  for (const Json& step : steps_of(text, "normalizer", "normalizers")) made.push_back(normalizer_step(step));
  return made;
}

Metaspace read_metaspace(std::string_view text) {
  std::vector<Json> steps = steps_of(text, "pre_tokenizer", "pretokenizers");
  Metaspace made;
  if (steps.size() == 2 && type_of(steps[0], "pre_tokenizer") == "WhitespaceSplit") {
    made.drop_spaces = true;
    steps.erase(steps.begin());
  }
  if (steps.size() != 1) refuse(fmt::format("a pre_tokenizer of {} steps", steps.size()));
  const Json& step = steps[0];
  if (const std::string type = type_of(step, "pre_tokenizer"); type != "Metaspace") {
    refuse(fmt::format("a pre_tokenizer of type {}", type));
  }
  expect_members(step, "pre_tokenizer",
                 {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  if (step.value("replacement", Json()) != kSpaceMark) refuse("a Metaspace with another replacement");
  const std::string scheme =
      step.value("prepend_scheme", Json(flag(step, "add_prefix_space", true) ? "always" : "never")).dump();
  if (scheme != "\"always\"" && scheme != "\"first\"" && scheme != "\"never\"") {
    refuse(fmt::format("prepend_scheme = {}", scheme));
  }
  made.prefix = scheme == "\"always\""  ? PrefixSpace::always
                : scheme == "\"first\"" ? PrefixSpace::first
                                        : PrefixSpace::never;
  made.split_at_spaces = flag(step, "split", true);
  if (made.drop_spaces && (made.prefix != PrefixSpace::always || !made.split_at_spaces)) {
    refuse(fmt::format("WhitespaceSplit with prepend_scheme = {} and split = {}", scheme, made.split_at_spaces));
  }
  return made;
}

void check_unigram_decoder(std::string_view text) {
  for (const Json& step : steps_of(text, "decoder", "decoders")) {
    const std::string type = type_of(step, "decoder");
    if (type != "Metaspace" && type != "ByteFallback" && type != "Fuse") {
      refuse(fmt::format("a decoder of type {}", type));
    }
  }
}

}  // namespace megatron
