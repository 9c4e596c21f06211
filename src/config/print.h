// A Config as text: TOML that parses back to the identical Config, for --print-config, a run's config.toml and hashes.
#pragma once

#include <string>

#include "config/config.h"
#include "config/schema.h"

namespace megatron {

/// Every key that has a value, in the schema's order. Doubles print as the shortest text that reads back the same.
std::string print_config(const Config& config);

/// One key's value in TOML, "" when it is absent (unset, to be derived).
std::string print_value(const Key& key, const Config& config);

/// 16 hexadecimal digits over print_config: equal for equal configurations, to compare ranks and runs.
std::string config_hash(const Config& config);

}  // namespace megatron
