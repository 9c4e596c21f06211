// What the data tests share: a temporary folder, small files, shards from lists of documents, and expected errors.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/token_shard.h"
#include "support/temporary_folder.h"

namespace megatron::test {

/// In memory where there is such a place: shards are flushed to disk, which takes its time.
class ShardFolder : public TemporaryFolder {
 public:
  ShardFolder()
      : TemporaryFolder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path()) {}
};

/// Runs `work`; it must throw an Error of `kind` whose message contains every one of `parts`.
template <class Work>
void require_error(ErrorKind kind, const std::vector<std::string>& parts, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    INFO("message: " << error.what());
    CHECK(error.kind() == kind);
    for (const std::string& part : parts) {
      INFO("missing: " << part);
      CHECK(std::string(error.what()).find(part) != std::string::npos);
    }
    return;
  }
  FAIL("no error was thrown");
}

using Documents = std::vector<std::vector<std::int32_t>>;

inline Vocabulary small_vocabulary(std::uint64_t size = 257) {
  return {"byte", 11, size, size - 1};
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
