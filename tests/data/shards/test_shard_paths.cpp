// Tests of the meaning of a path in the input file: one set, a folder of sets, a pattern of shards.
#include "data/shards/shard_paths.h"

#include "data/shards/token_dataset.h"
#include "support/data_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Ids of all tokens of what the path stands for.
std::vector<std::int32_t> ids_of(const std::string& path) {
  TokenDataset dataset(path);
  std::vector<std::int32_t> ids(dataset.tokens());
  dataset.read(0, ids.size(), ids.data());
  return ids;
}

/// In folder d: set "b" of one shard, set "a" of three, and other files.
struct SetsOnDisk {
  ShardFolder folder;

  SetsOnDisk() {
    std::filesystem::create_directories(folder.file("d/below"));
    make_shard(folder.file("d/b"), {{20, 21}});
    for (std::uint64_t i = 0; i < 3; ++i) {
      make_shard(folder.file("d/a"), {{static_cast<std::int32_t>(10 + i)}}, i, 3, small_vocabulary(), 7);
    }
    make_shard(folder.file("d/below/z"), {{90}});
    write_file(folder.file("d/a.vocab.json"), "{}");
    write_file(folder.file("d/a-part-00000.h5.tmp"), "");
    write_file(folder.file("d/notes-1.h5"), "not a shard's name");
  }
};

}  // namespace

TEST_CASE("a folder stands for its sets, in the order of their names") {
  const SetsOnDisk disk;
  CHECK(ids_of(disk.folder.file("d")) == std::vector<std::int32_t>{10, 11, 12, 20, 21});
  CHECK(ids_of(disk.folder.file("d/")) == std::vector<std::int32_t>{10, 11, 12, 20, 21});
  CHECK(ids_of(disk.folder.file("d/a")) == std::vector<std::int32_t>{10, 11, 12});
  const TokenDataset dataset(disk.folder.file("d"));
  CHECK(dataset.shards() == 4);
  CHECK(dataset.documents() == 4);
  CHECK(dataset.prefix() == disk.folder.file("d/a"));
  require_error(ErrorKind::data, {disk.folder.file("empty"), "no token shards"}, [&] {
    std::filesystem::create_directories(disk.folder.file("empty"));
    TokenDataset(disk.folder.file("empty"));
  });
}

TEST_CASE("shard paths: a pattern finds shards and sets in folders that match") {
  const SetsOnDisk disk;
  CHECK(ids_of(disk.folder.file("d/*")) == std::vector<std::int32_t>{10, 11, 12, 20, 21, 90});
  CHECK(ids_of(disk.folder.file("d/?-*")) == std::vector<std::int32_t>{10, 11, 12, 20, 21});
  CHECK(ids_of(disk.folder.file("d/a-0000[02].h5")) == std::vector<std::int32_t>{10, 12});
  CHECK(ids_of(disk.folder.file("*/bel*")) == std::vector<std::int32_t>{90});
  require_error(ErrorKind::data, {"d/c*", "match"}, [&] { TokenDataset(disk.folder.file("d/c*")); });
  require_error(ErrorKind::data, {"c-00000.h5: not found", "--output", "pattern"},
                [&] { TokenDataset(disk.folder.file("d/c")); });
  // A prefix that looks like a pattern is what it says.
  make_shard(disk.folder.file("d/[x]"), {{5}});
  CHECK(ids_of(disk.folder.file("d/[x]")) == std::vector<std::int32_t>{5});
}

TEST_CASE("shard paths: sets are hashed together and a single one keeps its hash") {
  const SetsOnDisk disk;
  const auto hash = [&](const std::string& path) { return TokenDataset(disk.folder.file(path)).set_hash(); };
  CHECK(hash("d/a") == 7);
  CHECK(hash("d/a-*") == 7);
  CHECK(hash("d/a-0000[01].h5") != 7);
  CHECK(hash("d/a-0000[01].h5") != hash("d/a-0000[02].h5"));
  CHECK(hash("d") != 7);
  CHECK(hash("d") == hash("d/?-*"));
}

TEST_CASE("shard paths: folders that lack a shard or mix tokenizers are refused") {
  const SetsOnDisk disk;
  make_shard(disk.folder.file("d/q"), {{1}}, 0, 1, small_vocabulary(300));
  require_error(ErrorKind::data, {"q-00000.h5", "another tokenizer", "a-00000.h5"},
                [&] { TokenDataset(disk.folder.file("d")); });
  CHECK(ids_of(disk.folder.file("d/[ab]-*")) == std::vector<std::int32_t>{10, 11, 12, 20, 21});
  std::filesystem::remove(disk.folder.file("d/a-00001.h5"));
  require_error(ErrorKind::data, {"a-00001.h5: not found, but the set has 3 shards"},
                [&] { TokenDataset(disk.folder.file("d/[ab]-*")); });
  require_error(ErrorKind::data, {"a-00001.h5: not found"}, [&] { TokenDataset(disk.folder.file("d/a-00000*")); });
  std::filesystem::remove(disk.folder.file("d/a-00000.h5"));
  require_error(ErrorKind::data, {"a-00000.h5: not found, but other shards"},
                [&] { TokenDataset(disk.folder.file("d/[ab]-*")); });
}
