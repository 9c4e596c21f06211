// A set of shards read as one line of tokens; sets that are not whole or not of one make.
#include <numeric>

#include "data/shards/token_dataset.h"
#include "support/data_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// `shards` shards whose tokens count up from 0 modulo 256; shard i has i + 1 documents of three tokens.
void make_set(const std::string& prefix, std::uint64_t shards, std::uint64_t set_hash = 99) {
  std::int32_t next = 0;
  for (std::uint64_t i = 0; i < shards; ++i) {
    Documents documents(i + 1);
    for (auto& document : documents) {
      for (int k = 0; k < 3; ++k) document.push_back(next++ % 256);
    }
    make_shard(prefix, documents, i, shards, small_vocabulary(), set_hash);
  }
}

void refuse(const ShardFolder& folder, const std::vector<std::string>& parts) {
  require_error(ErrorKind::data, parts, [&] { TokenDataset dataset(folder.file("p")); });
}

}  // namespace

TEST_CASE("dataset: any range over any shards, more of them than stay open", "[dataset]") {
  ShardFolder folder;
  const std::uint64_t shards = 66;
  make_set(folder.file("p"), shards);
  TokenDataset dataset(folder.file("p"));
  CHECK(dataset.shards() == shards);
  CHECK(dataset.documents() == shards * (shards + 1) / 2);
  CHECK(dataset.tokens() == 3 * dataset.documents());
  CHECK(dataset.vocabulary() == small_vocabulary());
  for (std::uint64_t i = 0; i <= dataset.documents(); ++i) CHECK(dataset.document_start(i) == 3 * i);
  for (std::uint64_t first = 0; first < dataset.tokens(); first += 611) {
    for (const std::uint64_t wanted : {0ull, 1ull, 7ull, 2000ull, 100000ull}) {
      const std::uint64_t count = std::min(wanted, dataset.tokens() - first);
      std::vector<std::int32_t> ids(count + 1, -7);
      dataset.read(first, count, ids.data());
      for (std::uint64_t i = 0; i < count; ++i) REQUIRE(ids[i] == static_cast<std::int32_t>((first + i) % 256));
      CHECK(ids[count] == -7);
    }
  }
  require_error(ErrorKind::internal, {}, [&] {
    std::int32_t id = 0;
    dataset.read(dataset.tokens(), 1, &id);
  });
}

TEST_CASE("dataset: a set that lacks, mixes or mislabels shards", "[dataset][fault-9]") {
  ShardFolder folder;
  namespace fs = std::filesystem;
  refuse(folder, {"p-00000.h5", "not found", "--output"});
  make_set(folder.file("p"), 4);
  fs::remove(shard_path(folder.file("p"), 2));
  refuse(folder, {"p-00002.h5", "not found", "4 shards"});
  fs::copy(shard_path(folder.file("p"), 1), shard_path(folder.file("p"), 2));
  refuse(folder, {"p-00002.h5", "says it is shard 1"});
  make_set(folder.file("p"), 4);
  make_set(folder.file("q"), 4, 100);
  fs::copy(shard_path(folder.file("q"), 3), shard_path(folder.file("p"), 3), fs::copy_options::overwrite_existing);
  refuse(folder, {"p-00003.h5", "two runs"});
  make_set(folder.file("p"), 4);
  make_shard(folder.file("p"), {{1}}, 1, 4, {"byte", 12, 257, 256});
  refuse(folder, {"p-00001.h5", "another tokenizer"});
  make_set(folder.file("p"), 4);
  write_file(shard_path(folder.file("p"), 3), "");
  refuse(folder, {"p-00003.h5"});
}

TEST_CASE("dataset: a damaged chunk names its file and place, and stays local", "[dataset][fault-11]") {
  ShardFolder folder;
  std::vector<std::int32_t> document(200000);
  for (std::size_t i = 0; i < document.size(); ++i) document[i] = static_cast<std::int32_t>(i * 7 % 251);
  make_shard(folder.file("p"), {document});
  std::string bytes = contents_of(shard_path(folder.file("p"), 0));
  bytes[bytes.size() * 3 / 4] = static_cast<char>(bytes[bytes.size() * 3 / 4] ^ 4);
  write_file(shard_path(folder.file("p"), 0), bytes);
  TokenDataset dataset(folder.file("p"));
  std::vector<std::int32_t> ids(document.size());
  require_error(ErrorKind::data, {"p-00000.h5", "/tokens", "elements 196608 to 199999", "not what was written"},
                [&] { dataset.read(0, ids.size(), ids.data()); });
  dataset.read(0, 1000, ids.data());
  CHECK(std::equal(ids.begin(), ids.begin() + 1000, document.begin()));
}
