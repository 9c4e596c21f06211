// One TOML value into one field of Config, checked against its row of the schema. Internal to src/config: the only
// place other than parse.cpp that knows TOML.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/schema/schema.h"

namespace megatron {

/// Sets the key's field and returns ""; or leaves it and returns what is wrong, beginning with the key's name.
std::string read_value(const toml::node& node, const Key& key, Config& config);

/// The text of an option or an answer as a value of the key: TOML, or a plain string.
struct TextValue {
  toml::table document;  ///< has it as "value"
  std::string problem;   ///< or what is wrong: then there is no value
};
TextValue read_text(const std::string& text, const Key& key);

/// An integer, or a number like 1e3 that is one.
std::optional<std::int64_t> whole_number(const toml::node& node);

/// "integer", "number", "string" ... for messages.
std::string_view type_name(const toml::node& node);

}  // namespace megatron
