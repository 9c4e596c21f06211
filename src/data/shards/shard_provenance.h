// The provenance of token shards: JSON that says where their text comes from, /provenance (u8) in every shard of a set.
// Shards whose text megatron_clean has not made have none. What it says is its writer's business
// (data/preprocess/text_provenance.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/log.h"
#include "data/shards/token_dataset.h"

namespace megatron {

inline constexpr std::string_view kProvenanceDataset = "provenance";

/// Adds it to a finished temporary shard, before seal_shard(). ErrorKind::data if it is more than a shard may have.
void add_provenance(const std::string& temporary_path, std::string_view json);
/// That of a set, in its first shard; empty where there is none. ErrorKind::data if it is damaged.
std::string provenance_of_shards(const std::string& prefix);

/// The steps that made a set's text, in words, such as "text kept 634 of 700, duplicates kept 600 of 634"; empty if the
/// JSON is not written as ours is.
std::string describe_provenance(const std::string& json);

/// Writes RUN/provenance.json, {PREFIX: {"steps": [[{"step", "read", "kept", "removed", "made_by"}, ...], ...],
/// "provenance"}}, and a line of the log for each set that has one. For one rank. What is damaged is a warning: the
/// tokens are what is trained on.
void keep_provenance(const std::string& run_directory, const std::vector<std::unique_ptr<TokenDataset>>& sets,
                     Log& log);

}  // namespace megatron
