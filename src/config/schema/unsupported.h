// Input file settings that the trainer does not support yet: refused by name before anything starts, never ignored.
// --dry-run plans such files; only training refuses. Supporting a feature means deleting its row.
#pragma once

#include <span>
#include <string_view>

#include "config/schema/config.h"

namespace megatron {

struct Unsupported {
  std::string_view key;   ///< table.key
  bool planned;           ///< --dry-run's numbers take it into account (or it does not change them)
  std::string_view what;  ///< the values of it that are refused, as documentation says them
  bool (*asked_for)(const Config&);
};

std::span<const Unsupported> unsupported_features();

/// Throws one Error(configuration) that lists each feature the configuration asks for and training lacks.
void reject_unsupported_keys(const Config& config);

}  // namespace megatron
