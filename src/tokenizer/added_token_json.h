// Added tokens as a tokenizer.json has them. Internal to src/tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "text/json_reader.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/vocabulary_file.h"

namespace megatron {

struct PlacedToken {
  std::size_t at = 0;  ///< where the token is in the file
  std::uint64_t id = 0;
  AddedToken token;  ///< but for its id
};

/// The one that comes next in a reader of `text`. UnsupportedStep if it has members of other names.
PlacedToken read_added_token(JsonReader& json, std::string_view text);

nlohmann::ordered_json written_token(const AddedToken& token);

/// The text of a file that was read, to add tokens to. Fails for `file` where a number is too large.
nlohmann::ordered_json parse_to_change(std::string_view text, const NamedText& file);

}  // namespace megatron
