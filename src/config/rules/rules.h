// The rules between keys. Pure functions over Config (and what is known of ranks and data); they change nothing, start
// nothing, and report every violation at once, with the arithmetic and the nearest choices that would work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

struct Violation {
  std::vector<std::string> keys;  ///< the keys involved, the one to look at first in front
  std::string message;
  std::string other_way_out;  ///< by a key that only an input file has, or empty

  /// Both, for a message about an input file.
  std::string whole() const { return other_way_out.empty() ? message : message + "; " + other_way_out; }
};

/// Rules that need neither ranks nor data: complete sizes, layout divisions, contradicting ways to say one thing.
/// The configuration may be fresh from a file or already resolved.
std::vector<Violation> check_alone(const Config& config);

/// Rules that need the number of ranks: the grid's size, batch divisions at every size of a ramp-up.
std::vector<Violation> check_with_ranks(const Config& config, int ranks);

/// Explicit size or the default of it.
std::int64_t ffn_hidden_size_of(const ModelConfig& model);
std::int64_t query_groups_of(const ModelConfig& model);
/// An encoder-decoder's; else 0.
std::int64_t decoder_layers_of(const ModelConfig& model);
std::int64_t decoder_sequence_length_of(const ModelConfig& model);
/// The shortest decoder_sequence_length: a beginning, a sentinel, a token.
inline constexpr std::int64_t kFewestDecoderRows = 3;

}  // namespace megatron
