// FolderSettings: what the files of a Hugging Face model's folder say about the vocabulary next to them: added tokens,
// and how words are found. Internal to src/data/tokenizer; must not know which kinds of vocabularies there are.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/vocabulary_file.h"

namespace megatron {

/// A JSON object next to a tokenizer's files; null if there is no such file. ErrorKind::data for anything else.
nlohmann::json read_folder_json(const std::string& path);

/// The name of the tokenizer's class without "Fast", from tokenizer_config.json or else config.json; empty where
/// neither has one.
std::string tokenizer_class_of(const std::string& folder);

/// Facts in the files next to a vocabulary. ErrorKind::data with file and key for what is wrong in them.
struct FolderSettings {
  /// By ids: of "added_tokens_decoder" in tokenizer_config.json, or else of added_tokens.json. Those that
  /// tokenizer_config.json, or next to added_tokens.json special_tokens_map.json, names as special are that.
  std::vector<AddedToken> added;
  /// Whether these flags replace those that a tokenizer.json has for the same tokens.
  bool replaces = false;
  /// "legacy" of tokenizer_config.json: SentencePiece's space stands in front of every text between special tokens,
  /// else in front of the whole text only. True where the file does not say, as in transformers 4.
  bool legacy = true;
  /// Entries of tokenizer_config.json, where it has them.
  std::optional<bool> add_prefix_space, strip_accents, tokenize_chinese_chars;

  /// ErrorKind::data, unless `added` are tokens of the vocabulary with their ids, and then those that follow it.
  void check_ids(const std::string& vocab_file, std::span<const std::string> tokens) const;
  /// Whether one of `added` is not special, or looks at what is around it, or is none of `known`.
  bool adds_to(std::span<const AddedToken> known) const;
  /// `added`, then the other ones of `known`.
  std::vector<AddedToken> with(std::span<const AddedToken> known) const;
  /// A tokenizer.json with `added`; those that it has keep their ids.
  NamedText added_to(NamedText file) const;
};
FolderSettings folder_settings(const std::string& folder);  ///< "model/"

}  // namespace megatron
