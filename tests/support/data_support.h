// Common parts of the data tests: a temporary folder, small files, shards from lists of documents.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/shards/token_shard.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

namespace megatron::test {

/// In memory where there is such a place: shards are flushed to disk, which takes its time.
class ShardFolder : public TemporaryFolder {
 public:
  ShardFolder()
      : TemporaryFolder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path()) {}
};

using Documents = std::vector<std::vector<std::int32_t>>;

inline Vocabulary small_vocabulary(std::uint64_t size = 257) {
  return {"byte", 11, size, size - 1};
}

/// A finished shard under the name of its place in a set.
inline void publish_shard(const std::string& temporary, const std::string& prefix, std::uint64_t index,
                          std::uint64_t count, std::uint64_t set_hash) {
  seal_shard(temporary, index, count, set_hash);
  std::filesystem::rename(temporary, shard_path(prefix, index));
}

/// Writes and publishes one shard of a set.
inline void make_shard(const std::string& prefix, const Documents& documents, std::uint64_t index = 0,
                       std::uint64_t count = 1, const Vocabulary& vocabulary = small_vocabulary(),
                       std::uint64_t set_hash = 99) {
  TokenShardWriter writer(prefix + ".tmp", vocabulary);
  for (const auto& document : documents) writer.add_document(document);
  writer.finish();
  publish_shard(prefix + ".tmp", prefix, index, count, set_hash);
}

}  // namespace megatron::test
