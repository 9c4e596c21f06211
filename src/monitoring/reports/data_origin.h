// Where a run's data comes from, for its page: the steps of megatron_clean that made the text of its shards.
#pragma once

#include <string>

namespace megatron {

/// HTML: for each set of shards a table of the steps, the first one first. `json`: a run's provenance.json
/// (data/shards/shard_provenance.h); empty: nothing. One that is not written as ours is said to be so.
std::string data_origin(const std::string& json);

}  // namespace megatron
