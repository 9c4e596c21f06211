// One key's value from a text that a person typed. For questions and answers; options of the command line are
// parse.h's.
#pragma once

#include <string>

#include "config/schema/schema.h"

namespace megatron {

/// Sets the key as `--set` would: the text is TOML, and anything that is not TOML is a plain string. Returns "", or
/// what is wrong in the words of parse_config; then the value stays as it was. Checks this key alone: the rules between
/// keys are rules.h's.
std::string set_value(const Key& key, const std::string& text, Config& config);

}  // namespace megatron
