// Added tokens as a tokenizer.json has them. Internal to src/data/tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_reader.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/vocabulary_file.h"

namespace megatron {

struct PlacedToken {
  std::size_t at = 0;  ///< where the token is in the file
  std::uint64_t id = 0;
  AddedToken token;  ///< but for its id
};

/// The one that comes next in a reader of `text`. UnsupportedStep if it has members of other names.
PlacedToken read_added_token(JsonReader& json, std::string_view text);

/// The JSON object of one.
std::string written_token(const AddedToken& token);

/// A JSON object next to a tokenizer's files; null if there is no such file. ErrorKind::data for anything else.
nlohmann::json read_folder_json(const std::string& path);

/// The name of the tokenizer's class without "Fast", from tokenizer_config.json or else config.json; empty where
/// neither has one.
std::string tokenizer_class_of(const std::string& folder);

/// Facts in the files next to a vocabulary. ErrorKind::data with file and key for what is wrong in them.
struct FolderSettings {
  /// By ids: of "added_tokens_decoder" in tokenizer_config.json, or else of added_tokens.json. Those of the latter are
  /// special if tokenizer_config.json or special_tokens_map.json names them as such.
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

/// A member of the object that `text` is, as it is written there; empty if there is none. Large files are changed by
/// their text: objects that keep the order of their members take the square of their number. JsonError if it is none.
std::string_view member_text(std::string_view text, std::string_view key);
/// The text with another value of a member, which is added if need be.
std::string with_member(std::string_view text, std::string_view key, std::string_view value);

/// A tokenizer.json with more added tokens.
std::string with_added_tokens(std::string_view text, std::span<const AddedToken> more);
/// A tokenizer.json without the added tokens whose ids are `rows` or greater; 0: as it is.
NamedText without_tokens_beyond(NamedText file, std::int64_t rows);

}  // namespace megatron
