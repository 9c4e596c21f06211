// The provenance of shards: written and read back, and of shards that are damaged or have none.
#include "data/shards/shard_provenance.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/shards/token_shard.h"
#include "support/catch.h"
#include "support/data_support.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const Vocabulary kVocabulary{.tokenizer = "byte", .hash = 1, .size = 257, .eod_id = 256};

/// A set of one shard; empty: without a provenance.
void write_shard(const std::string& prefix, const std::string& provenance) {
  const std::string path = shard_path(prefix, 0);
  TokenShardWriter writer(path, kVocabulary);
  writer.add_document(std::vector<std::int32_t>{1, 2, 3});
  const std::uint64_t hash = writer.finish();
  if (!provenance.empty()) add_provenance(path, provenance);
  seal_shard(path, 0, 1, hash);
}

nlohmann::json step(const std::string& name, int read, int kept, const nlohmann::json& from) {
  nlohmann::json input = {{"file", "a.jsonl"}};
  if (!from.empty()) input["from"] = from;
  return {{"step", name},
          {"made_by", "a test"},
          {"documents", {{"read", read}, {"kept", kept}}},
          {"removed", {{"short", read - kept}}},
          {"inputs", nlohmann::json::array({input})}};
}

}  // namespace

TEST_CASE("shard provenance: is read back, and the tokens are as without it") {
  const ShardFolder folder;
  const std::string long_text(300'000, 'x');
  for (const std::string& text : {std::string("{}"), long_text}) {
    write_shard(folder.file("set"), text);
    CHECK(provenance_of_shards(folder.file("set")) == text);
    TokenShard shard(folder.file("set-00000.h5"));
    std::vector<std::int32_t> tokens(3);
    shard.read(0, 3, tokens.data());
    CHECK(tokens == std::vector<std::int32_t>{1, 2, 3});
  }
  write_shard(folder.file("set"), "");
  CHECK(provenance_of_shards(folder.file("set")).empty());
  CHECK(provenance_of_shards(folder.file("no_set")).empty());
}

TEST_CASE("shard provenance: a changed byte is found") {
  const ShardFolder folder;
  const std::string text = "{\"a text that is nowhere else\": 1}";
  write_shard(folder.file("set"), text);
  std::string bytes = contents_of(folder.file("set-00000.h5"));
  const std::size_t at = bytes.find(text);
  REQUIRE(at != std::string::npos);
  bytes[at + 4] ^= 1;
  write_file(folder.file("set-00000.h5"), bytes);
  require_error(ErrorKind::data, {"set-00000.h5", "provenance"}, [&] { provenance_of_shards(folder.file("set")); });
  CHECK_NOTHROW(TokenShard(folder.file("set-00000.h5")));  // its tokens are whole
}

TEST_CASE("shard provenance: the steps in words, in their order") {
  const nlohmann::json text = step("text", 10, 8, {}), last = step("duplicates", 8, 5, text);
  const auto told = [](const nlohmann::json& json) { return describe_provenance(json.dump()); };
  CHECK(told({{"results", {last}}}) == "text kept 8 of 10, duplicates kept 5 of 8");
  CHECK(told({{"results", {text, text}}}) == "text kept 8 of 10, text kept 8 of 10");
  for (const char* const other : {"", "{", "[]", "{}", "{\"results\": 1}", "{\"results\": [{\"inputs\": 3}]}"}) {
    CAPTURE(other);
    CHECK(describe_provenance(other).empty());
  }
}
