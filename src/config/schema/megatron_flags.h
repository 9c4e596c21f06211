// Megatron-LM's command-line flags (also Megatron-DeepSpeed's and Accelerate's names), and what does the same here.
//
// The table is what an unknown option's message quotes, and docs/from_megatron.md is printed from it. It accepts
// nothing: an input file has only the keys of the schema.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megatron {

struct MegatronFlag {
  std::string_view flag;  ///< "--num-layers"
  std::string_view key;   ///< "model.layers"; empty where no key of the input file is meant
  std::string_view note;  ///< about the value, or what to use instead; one clause without a full stop
};

struct MegatronFlagGroup {
  std::string_view title;
  std::span<const MegatronFlag> flags;
};

std::span<const MegatronFlagGroup> megatron_flag_groups();

/// The row of a flag as it is typed, dashes and underscores alike, without regard to case; null: it is none.
const MegatronFlag* find_megatron_flag(std::string_view flag);

/// Names, for a message, the key to write instead of a flag with this value (empty: none was given).
std::string megatron_advice(const MegatronFlag& flag, std::string_view value);

/// docs/from_megatron.md.
std::string megatron_reference();

}  // namespace megatron
