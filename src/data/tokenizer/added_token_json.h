// Added tokens as a tokenizer.json has them. Internal to src/data/tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
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
