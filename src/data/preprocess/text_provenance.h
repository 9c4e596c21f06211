// Where the text of token shards comes from: which files, and for those that megatron_clean has written what made them.
// megatron_preprocess writes it into the shards (data/shards/shard_provenance.h).
#pragma once

#include <span>
#include <string>

#include "data/preprocess/clean_result.h"
#include "data/preprocess/input_identity.h"

namespace megatron {

/// Whether a file of text is one that megatron_clean has written.
enum class TextOrigin : int {
  unknown,  ///< no provenance.json in its folder names it
  cleaned,  ///< it is as megatron_clean has written it
  changed,  ///< it was written by megatron_clean, and is another now
};
/// Reads all of a file that a provenance names. `last`: that of the file before.
TextOrigin origin_of_text(const std::string& path, LastProvenance& last);

/// JSON: {"made_by", "inputs": [{"file", "bytes", "from"}], "results": [provenance, ...]}, where "from" numbers the
/// result that a file is a part of. Empty where no file is as megatron_clean has written it.
std::string describe_origins(const std::string& program, std::span<const InputIdentity> files,
                             std::span<const TextOrigin> origins);

}  // namespace megatron
