#include "data/tokenizer/tokenizer_export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/tokenizer/added_token_json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/tokenizer_pipeline.h"

namespace megatron {

namespace {

using Json = nlohmann::json;

Json byte_level(bool use_regex, bool add_prefix_space = false) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json written_pre_tokenizer(const BpeVocabulary& vocabulary) {
  if (vocabulary.pattern == SplitPattern::gpt2) return byte_level(true, vocabulary.add_prefix_space);
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", regex_of(vocabulary.pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

/// Tokens by their ids. Hugging Face numbers added tokens that the vocabulary lacks from its end on, whatever ids they
/// have: with ignore_merges those at the end are left out, and others are written as they stand in a text.
Json written_vocab(const BpeVocabulary& vocabulary) {
  std::vector<bool> in_text(vocabulary.tokens.size());
  std::size_t end = vocabulary.tokens.size();
  for (const AddedToken& token : vocabulary.added) {  // tokens after the vocabulary are not written here
    if (const auto id = static_cast<std::size_t>(token.id); id < end) in_text[id] = true;
  }
  while (vocabulary.ignore_merges && end > 0 && in_text[end - 1]) --end;
  const ByteAlphabet alphabet;
  Json vocab = Json::object();
  for (std::size_t id = 0; id < end; ++id) {
    vocab[in_text[id] ? vocabulary.tokens[id] : alphabet.written(vocabulary.tokens[id])] = id;
  }
  return vocab;
}

}  // namespace

std::string write_tokenizer_json(const BpeVocabulary& vocabulary) {
  const ByteAlphabet alphabet;
  const auto written = [&](std::int32_t id) {
    return alphabet.written(vocabulary.tokens[static_cast<std::size_t>(id)]);
  };
  Json merges = Json::array();
  for (const BpeMerge& merge : vocabulary.merges) merges.push_back({written(merge.left), written(merge.right)});
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"continuing_subword_prefix", nullptr},
                      {"ignore_merges", vocabulary.ignore_merges},
                      {"vocab", written_vocab(vocabulary)},
                      {"merges", std::move(merges)},
                      {"end_of_word_suffix", nullptr}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array()},
                     {"normalizer", written_normalizer(vocabulary.normalizer)},
                     {"pre_tokenizer", written_pre_tokenizer(vocabulary)},
                     {"post_processor", byte_level(true)},
                     {"decoder", byte_level(true)},
                     {"model", model}};
  return with_added_tokens(file.dump() + "\n", vocabulary.added);
}

namespace {

using nlohmann::ordered_json;

bool is_special_piece(const ordered_json& piece) {
  return piece.contains("SpecialToken");
}

/// Whether a post-processor adds tokens to a text: any, or some after it.
bool adds_tokens(const ordered_json& step, bool after) {
  const std::string type = step.value("type", "");
  if (type != "TemplateProcessing") return type == "BertProcessing" || type == "RobertaProcessing";
  const ordered_json single = step.value("single", ordered_json::array());
  return after ? !single.empty() && is_special_piece(single.back())
               : std::any_of(single.begin(), single.end(), is_special_piece);
}

/// [CLS] A [SEP], [CLS] A [SEP] B [SEP], by the names of these two tokens.
ordered_json cls_sep_template(const Tokenizer& tokenizer) {
  const SpecialIds ids = tokenizer.special_ids();
  const std::string cls = tokenizer.decode(std::span(&ids.cls, 1)), sep = tokenizer.decode(std::span(&ids.sep, 1));
  const auto token = [](const std::string& name, int type) {
    return ordered_json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) {
    return ordered_json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  const auto described = [](const std::string& name, std::int32_t id) {
    return ordered_json{{"id", name}, {"ids", ordered_json::array({id})}, {"tokens", ordered_json::array({name})}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", ordered_json::array({token(cls, 0), text("A", 0), token(sep, 0)})},
          {"pair", ordered_json::array({token(cls, 0), text("A", 0), token(sep, 0), text("B", 1), token(sep, 1)})},
          {"special_tokens", {{cls, described(cls, ids.cls)}, {sep, described(sep, ids.sep)}}}};
}

}  // namespace

std::string trained_tokenizer_json(const Tokenizer& tokenizer, TextFrame frame) {
  std::string text = tokenizer.tokenizer_json();
  if (text.empty()) return text;
  const ordered_json post = ordered_json::parse(std::string(member_text(text, "post_processor")), nullptr, false);
  ordered_json steps = ordered_json::array(), kept = ordered_json::array();
  if (post.is_object()) {
    steps = post.value("type", "") == "Sequence" ? post.at("processors") : ordered_json::array({post});
  }
  for (const ordered_json& step : steps) {
    if (!adds_tokens(step, frame == TextFrame::nothing_after)) kept.push_back(step);
  }
  const bool adds = kept.size() < steps.size();
  if (adds == (frame == TextFrame::cls_sep)) return text;
  if (frame == TextFrame::cls_sep) kept.push_back(cls_sep_template(tokenizer));
  const ordered_json made = kept.empty()       ? ordered_json()
                            : kept.size() == 1 ? kept.front()
                                               : ordered_json{{"type", "Sequence"}, {"processors", kept}};
  return with_member(text, "post_processor", made.dump());
}

std::string write_tokenizer_config(const Tokenizer& tokenizer, std::int64_t longest, const Json& more) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"eos_token", tokenizer.eod_text()},
                 {"model_max_length", longest},
                 {"clean_up_tokenization_spaces", false}};
  const SpecialIds special = tokenizer.special_ids();
  const std::pair<const char*, std::int32_t> names[] = {{"cls_token", special.cls},   {"sep_token", special.sep},
                                                        {"mask_token", special.mask}, {"pad_token", special.pad},
                                                        {"unk_token", special.unk},   {"bos_token", special.bos}};
  for (const auto& [name, id] : names) {
    if (id >= 0) config[name] = tokenizer.decode(std::span(&id, 1));
  }
  if (more.is_object()) config.update(more);
  return config.dump(2) + "\n";
}

}  // namespace megatron
