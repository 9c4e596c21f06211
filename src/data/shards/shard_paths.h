// The token shards that a path of the input file stands for. Sets come in the order of their prefixes, byte by byte,
// and shards of a set in the order of their numbers: that is the order in which their documents are laid end to end. It
// does not depend on the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// Shards of one prefix.
struct ShardSet {
  std::string prefix;
  std::vector<std::uint64_t> indices;  ///< rising; empty: all that the set has
  bool operator==(const ShardSet&) const = default;
};

/// PREFIX-00007.h5
std::string shard_path(const std::string& prefix, std::uint64_t index);

/// At least one. ErrorKind::data if there are none, ErrorKind::filesystem if a folder cannot be read. `path` is a
///
///   PREFIX    as given to --output: the whole set PREFIX-00000.h5, PREFIX-00001.h5 ...
///   FOLDER    all sets that lie in it (not those in folders below)
///   PATTERN   with *, ? or [a-z]: the shards whose file names match, and the sets in folders whose names match
std::vector<ShardSet> find_shards(const std::string& path);

}  // namespace megatron
