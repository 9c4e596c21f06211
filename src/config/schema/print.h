// A Config as text: TOML that parses back to the identical Config, for --print-config, a run's config.toml and hashes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"
#include "config/schema/schema.h"

namespace megatron {

/// Every key that has a value, in the schema's order. Doubles print as the shortest text that reads back the same.
std::string print_config(const Config& config);

/// The keys that have another value than `base`, which is with_preset_alone() (presets.h), and model.preset, each with
/// a comment. It parses back to the identical Config.
std::string print_given_keys(const Config& config, const Config& base);
/// The same of `tables` alone, without comments.
std::string print_given(const Config& config, const Config& base, std::span<const std::string_view> tables);

/// One key's value in TOML, "" when it is absent (unset, to be derived).
std::string print_value(const Key& key, const Config& config);

/// Texts as a list of TOML: ["a", "b"].
std::string print_texts(const std::vector<std::string>& texts);

/// All of a key's row but the help, in words: "integer, in tokens; at least 1, at most 2^24. Default: 128."
std::string facts_of_key(const Key& key);

/// The keys of which `config` has another value than `saved`, the text of an earlier print_config(), one line each:
/// "learning_rate.peak = 0.004 (was 0.001)". A key that `saved` does not mention counts as its default.
std::vector<std::string> changed_keys(const std::string& saved, const Config& config);

}  // namespace megatron
