// What the data tests share: a temporary folder, small files, shards from lists of documents, and expected errors.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/token_shard.h"

namespace megatron::test {

/// A folder of its own that is gone afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    // In memory where there is such a place: shards are flushed to disk, which takes its time.
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent = memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "megatron-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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
