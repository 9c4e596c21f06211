#include "tokenizer/tokenizer_export.h"

#include <nlohmann/json.hpp>

#include "tokenizer/byte_alphabet.h"

namespace megatron {

using nlohmann::json;

std::string write_tokenizer_json(const BpeVocabulary& vocabulary) {
  const ByteAlphabet alphabet;
  const auto written = [&](std::int32_t id) {
    return alphabet.written(vocabulary.tokens[static_cast<std::size_t>(id)]);
  };
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  json vocab = json::object(), merges = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) vocab[written(static_cast<std::int32_t>(id))] = id;
  for (const BpeMerge& merge : vocabulary.merges) merges.push_back({written(merge.left), written(merge.right)});
  const json end = {{"id", vocabulary.end_of_text},
                    {"content", vocabulary.tokens[static_cast<std::size_t>(vocabulary.end_of_text)]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}};
  const json model = {{"type", "BPE"},          {"dropout", nullptr},
                      {"unk_token", nullptr},   {"fuse_unk", false},
                      {"byte_fallback", false}, {"continuing_subword_prefix", nullptr},
                      {"ignore_merges", false}, {"vocab", vocab},
                      {"merges", merges},       {"end_of_word_suffix", nullptr}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", json::array({end})},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", byte_level},
              {"decoder", byte_level},
              {"model", model}}
             .dump() +
         "\n";
}

std::string write_tokenizer_config(const Tokenizer& tokenizer, std::int64_t longest) {
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
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
  return config.dump(2) + "\n";
}

}  // namespace megatron
