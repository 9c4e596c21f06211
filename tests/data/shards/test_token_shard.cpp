// Shards: what is written comes back; whatever is cut, flipped or made up is an error of kind data, never other tokens.
#include <hdf5.h>

#include <functional>
#include <optional>

#include "base/core/philox.h"
#include "data/shards/shard_files.h"
#include "support/data_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// All there is in a shard, or nothing if it is refused (with the right kind of error).
struct Contents {
  Vocabulary vocabulary;
  std::uint64_t index = 0, count = 0, set_hash = 0;
  std::vector<std::uint64_t> documents;
  std::vector<std::int32_t> tokens;
  bool operator==(const Contents&) const = default;
};

std::optional<Contents> shard_contents(const std::string& path) {
  try {
    TokenShard shard(path);
    Contents all{shard.vocabulary(), shard.index(), shard.count(), shard.set_hash(), shard.read_documents(), {}};
    all.tokens.resize(shard.tokens());
    shard.read(0, shard.tokens(), all.tokens.data());
    return all;
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.kind() == ErrorKind::data);
    return std::nullopt;
  }
}

std::uint64_t draw(std::uint64_t number, std::uint64_t limit) {
  return mix64(number * 977 + 5) % limit;
}

/// Overwrites element `at` of a dataset of one chunk, checksum and hashes included.
template <class T>
void overwrite(const std::string& path, const std::string& name, hsize_t at, hid_t type, T value) {
  const auto lock = lock_hdf5();
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT), space = H5Dget_space(dataset);
  std::vector<T> all(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  REQUIRE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()) >= 0);
  all.at(at) = value;
  REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()) >= 0);
  const std::uint64_t hash = XXH3_64bits(all.data(), all.size() * sizeof(T));
  const std::uint64_t hash_of_it = XXH3_64bits_withSeed(&hash, sizeof hash, all.size());
  const hid_t table = H5Dopen2(file, (name + ".xxh3").c_str(), H5P_DEFAULT);
  REQUIRE(H5Dwrite(table, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &hash) >= 0);
  const hid_t attribute = H5Aopen(table, "xxh3", H5P_DEFAULT);
  REQUIRE(H5Awrite(attribute, H5T_NATIVE_UINT64, &hash_of_it) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  for (const hid_t id : {dataset, table}) H5Dclose(id);
  H5Fclose(file);
}

const Documents kDocuments{{1, 2, 3, 256}, {4, 256}, {255}};

}  // namespace

TEST_CASE("shard: documents come back, narrow and wide", "[shard]") {
  ShardFolder folder;
  for (const std::uint64_t size : {257ull, 65536ull, 65537ull, 1ull << 31}) {
    const Vocabulary vocabulary = small_vocabulary(size);
    Documents documents = kDocuments;
    documents.push_back({static_cast<std::int32_t>(size - 1)});
    make_shard(folder.file("p"), documents, 0, 1, vocabulary);
    const auto all = shard_contents(shard_path(folder.file("p"), 0));
    REQUIRE(all.has_value());
    CHECK(all->vocabulary == vocabulary);
    CHECK(all->documents == std::vector<std::uint64_t>{0, 4, 6, 7, 8});
    CHECK(all->tokens == std::vector<std::int32_t>{1, 2, 3, 256, 4, 256, 255, static_cast<std::int32_t>(size - 1)});
    const Hdf5Type stored = Hdf5Reader(shard_path(folder.file("p"), 0), ErrorKind::data).open_dataset("tokens").type();
    CHECK(stored == (size <= 65536 ? Hdf5Type::u16 : Hdf5Type::u32));
  }
  CHECK(folder.files() == std::vector<std::string>{"p-00000.h5"});
}

TEST_CASE("shard: many documents and one larger than the writer's buffers", "[shard]") {
  ShardFolder folder;
  std::vector<std::int32_t> expected;
  std::vector<std::uint64_t> starts{0};
  TokenShardWriter writer(folder.file("t"), small_vocabulary());
  for (std::uint64_t i = 0; i < 70000; ++i) {
    const std::vector<std::int32_t> document(i == 123 ? 700001 : 1 + draw(i, 5), static_cast<std::int32_t>(i % 257));
    writer.add_document(document);
    expected.insert(expected.end(), document.begin(), document.end());
    starts.push_back(expected.size());
  }
  CHECK(writer.documents() == 70000);
  CHECK(writer.tokens() == expected.size());
  writer.finish();
  publish_shard(folder.file("t"), folder.file("p"), 0, 1, 5);
  const auto all = shard_contents(shard_path(folder.file("p"), 0));
  REQUIRE(all.has_value());
  CHECK(all->tokens == expected);
  CHECK(all->documents == starts);
}

TEST_CASE("shard: a token outside the vocabulary is refused at write and at load", "[shard][fault-12]") {
  ShardFolder folder;
  for (const std::int32_t bad : {257, -1, 65536 + 3}) {
    require_error(ErrorKind::data, {std::to_string(bad), "vocabulary of 257"}, [&] {
      make_shard(folder.file("p"), {{1}, {2, bad}});
    });
    CHECK(folder.files().empty());  // and the half-written shard is gone
  }
  make_shard(folder.file("p"), kDocuments);
  overwrite<std::uint16_t>(shard_path(folder.file("p"), 0), "tokens", 2, H5T_NATIVE_UINT16, 300);
  require_error(ErrorKind::data, {"p-00000.h5", "token 2", "300"}, [&] {
    TokenShard shard(shard_path(folder.file("p"), 0));
    std::int32_t ids[4];
    shard.read(1, 3, ids);
  });
  make_shard(folder.file("w"), kDocuments, 0, 1, small_vocabulary(70000));
  overwrite<std::uint32_t>(shard_path(folder.file("w"), 0), "tokens", 0, H5T_NATIVE_UINT32, 0xFFFFFFFFu);
  CHECK_FALSE(shard_contents(shard_path(folder.file("w"), 0)).has_value());
}

TEST_CASE("shard: format 1 is read, and format 2 needs its hashes", "[shard]") {
  const ShardFolder folder;
  make_shard(folder.file("p"), kDocuments);
  const std::string path = shard_path(folder.file("p"), 0);
  const auto expected = shard_contents(path);
  const auto with_raw_file = [&](const std::function<void(hid_t)>& change) {
    const auto lock = lock_hdf5();
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    change(file);
    REQUIRE(H5Fclose(file) >= 0);
  };
  with_raw_file([](hid_t file) {
    for (const char* name : {"tokens.xxh3", "documents.xxh3"}) REQUIRE(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  });
  require_error(ErrorKind::data, {path, "lacks the hashes"}, [&] { TokenShard shard(path); });
  Hdf5File file = Hdf5File::open_for_update(path);
  file.write_attribute("format_version", std::uint64_t{1});
  file.close();
  CHECK(shard_contents(path) == expected);
}

TEST_CASE("shard: contents that change while it is open are an error", "[shard][fault-54]") {
  const ShardFolder folder;
  make_shard(folder.file("p"), {std::vector<std::int32_t>(100000, 7)});
  const std::string path = shard_path(folder.file("p"), 0);
  TokenShard shard(path);
  std::int32_t ids[100];
  shard.read(0, 100, ids);
  const std::string whole = contents_of(path);
  std::string zeroed = whole;
  const std::size_t middle = whole.size() / 2;
  std::fill(zeroed.begin() + static_cast<std::ptrdiff_t>(middle), zeroed.end(), '\0');
  for (const std::string& contents : {zeroed, whole.substr(0, middle), std::string()}) {
    write_file(path, contents);
    require_error(ErrorKind::data, {path}, [&] { shard.read(99900, 100, ids); });
  }
  write_file(path, whole);
  CHECK_NOTHROW(shard.read(99900, 100, ids));
}

TEST_CASE("shard: attributes and offsets that make no sense", "[shard][fault-9][fault-12]") {
  ShardFolder folder;
  const std::string path = shard_path(folder.file("p"), 0);
  const auto spoil = [&](const std::string& name, std::uint64_t value) {
    make_shard(folder.file("p"), kDocuments);
    Hdf5File file = Hdf5File::open_for_update(path);
    file.write_attribute(name, value);
    file.close();
  };
  spoil("format_version", 3);
  require_error(ErrorKind::data, {path, "format 3"}, [&] { TokenShard shard(path); });
  spoil("vocab_size", 100000);  // more than u16 can hold
  require_error(ErrorKind::data, {path, "u16", "u32"}, [&] { TokenShard shard(path); });
  spoil("vocab_size", 0);
  require_error(ErrorKind::data, {path, "makes no sense"}, [&] { TokenShard shard(path); });
  spoil("eod_id", 257);
  require_error(ErrorKind::data, {path, "makes no sense"}, [&] { TokenShard shard(path); });
  spoil("shard_count", 0);
  require_error(ErrorKind::data, {path, "never published"}, [&] { TokenShard shard(path); });
  for (const std::uint64_t offset : {0ull, 7ull, ~0ull}) {
    make_shard(folder.file("p"), kDocuments);
    overwrite(path, "documents", 1, H5T_NATIVE_UINT64, offset);
    require_error(ErrorKind::data, {path, "/documents"}, [&] { TokenShard(path).read_documents(); });
  }
  TokenShardWriter empty(folder.file("t"), small_vocabulary());
  empty.finish();
  publish_shard(folder.file("t"), folder.file("e"), 0, 1, 5);
  require_error(ErrorKind::data, {"e-00000.h5", "no tokens"},
                [&] { TokenShard shard(shard_path(folder.file("e"), 0)); });
}

namespace {

const std::vector<std::vector<std::uint64_t>> kLengths{{1, 3}, {2}, {1}};

/// WordPiece-like: special tokens, tokens that continue words, and sentences.
Vocabulary rich_vocabulary() {
  Vocabulary vocabulary = small_vocabulary();
  vocabulary.special = {
      .cls = 0, .sep = 5, .mask = 6, .pad = 7, .bos = 8, .eos = 256, .unk = 9, .first_sentinel = 250, .sentinels = 7};
  vocabulary.continues.assign(257, 0);
  vocabulary.continues[4] = 1;
  return vocabulary;
}

void make_rich_shard(const std::string& prefix) {
  TokenShardWriter writer(prefix + ".tmp", rich_vocabulary(), Sentences::kept);
  for (std::size_t i = 0; i < kDocuments.size(); ++i) writer.add_document(kDocuments[i], kLengths[i]);
  writer.finish();
  publish_shard(prefix + ".tmp", prefix, 0, 1, 99);
}

}  // namespace

TEST_CASE("shard: sentences, special tokens and continuing ones come back", "[shard]") {
  ShardFolder folder;
  make_rich_shard(folder.file("p"));
  TokenShard shard(shard_path(folder.file("p"), 0));
  CHECK((shard.vocabulary() == rich_vocabulary()));
  REQUIRE(shard.has_sentences());
  CHECK(shard.read_sentences() == std::vector<std::uint64_t>{0, 1, 4, 6, 7});
  CHECK(shard.read_documents() == std::vector<std::uint64_t>{0, 4, 6, 7});
  make_shard(folder.file("q"), kDocuments);
  const TokenShard plain(shard_path(folder.file("q"), 0));
  CHECK_FALSE(plain.has_sentences());
  CHECK((plain.vocabulary() == small_vocabulary()));
  CHECK(Hdf5Reader(shard_path(folder.file("q"), 0), ErrorKind::data).datasets() ==
        std::vector<std::string>{"documents", "tokens"});
}

TEST_CASE("shard: sentinels that count down come back, and must fit", "[shard][fault-9]") {
  ShardFolder folder;
  Vocabulary vocabulary = rich_vocabulary();
  vocabulary.special.sentinel_step = -1;
  const auto make = [&](std::int32_t sentinels) {
    vocabulary.special.sentinels = sentinels;
    make_shard(folder.file("p"), kDocuments, 0, 1, vocabulary);
    return TokenShard(shard_path(folder.file("p"), 0)).vocabulary();
  };
  CHECK((make(251) == vocabulary));
  require_error(ErrorKind::data, {"252 sentinels from token 250 downward"}, [&] { make(252); });
}

TEST_CASE("shard: many sentences, more than the writer's buffers hold", "[shard]") {
  ShardFolder folder;
  constexpr std::uint64_t kSentences = 100'000;
  TokenShardWriter writer(folder.file("t"), small_vocabulary(), Sentences::kept);
  const std::vector<std::int32_t> ids(2 * kSentences, 3);
  writer.add_document(ids, std::vector<std::uint64_t>(kSentences, 2));
  writer.add_document(std::vector<std::int32_t>{1}, std::vector<std::uint64_t>{1});
  writer.finish();
  publish_shard(folder.file("t"), folder.file("p"), 0, 1, 5);
  const auto starts = TokenShard(shard_path(folder.file("p"), 0)).read_sentences();
  REQUIRE(starts.size() == kSentences + 2);
  for (std::uint64_t i = 0; i <= kSentences; ++i) REQUIRE(starts[i] == 2 * i);
  CHECK(starts.back() == 2 * kSentences + 1);
}

TEST_CASE("shard: sentences and special tokens that make no sense", "[shard][fault-9][fault-12]") {
  ShardFolder folder;
  const std::string path = shard_path(folder.file("p"), 0);
  // 1 is where the second sentence begins: not rising, a document's start missing, beyond the tokens.
  for (const auto& [at, offset] : std::vector<std::pair<hsize_t, std::uint64_t>>{
           {1, 0}, {1, 4}, {2, 3}, {2, 5}, {1, ~0ull}, {0, 1}, {4, 8}, {4, 6}}) {
    INFO("entry " << at << " is " << offset);
    make_rich_shard(folder.file("p"));
    overwrite(path, "sentences", at, H5T_NATIVE_UINT64, offset);
    require_error(ErrorKind::data, {path, "/sentences"}, [&] { TokenShard(path).read_sentences(); });
  }
  make_rich_shard(folder.file("p"));
  overwrite(path, "continues", 9, H5T_NATIVE_UINT8, std::uint8_t{2});
  require_error(ErrorKind::data, {path, "/continues"}, [&] { TokenShard shard(path); });
  const auto spoil = [&](const std::string& name, std::uint64_t value) {
    make_rich_shard(folder.file("p"));
    Hdf5File file = Hdf5File::open_for_update(path);
    file.write_attribute(name, value);
    file.close();
  };
  for (const char* name : {"cls", "mask", "first_sentinel", "bos"}) {
    for (const std::uint64_t value : {257ull, 1ull << 31, ~0ull}) {
      spoil(name, value);
      require_error(ErrorKind::data, {path, name, "outside the vocabulary"}, [&] { TokenShard shard(path); });
    }
  }
  for (const std::uint64_t value : {8ull, ~0ull}) {
    spoil("sentinels", value);
    require_error(ErrorKind::data, {path, "sentinels from token 250"}, [&] { TokenShard shard(path); });
  }
  spoil("vocab_size", 256);
  require_error(ErrorKind::data, {path}, [&] { TokenShard shard(path); });
}

TEST_CASE("shard: sentence lists of a wrong size or type are refused unread", "[shard][fault-9]") {
  ShardFolder folder;
  const std::string path = shard_path(folder.file("p"), 0);
  const auto with = [&](const char* name, auto values) {
    TokenShardWriter writer(folder.file("t"), small_vocabulary());
    for (const auto& document : kDocuments) writer.add_document(document);
    writer.finish();
    Hdf5File file = Hdf5File::open_for_update(folder.file("t"));
    Hdf5Dataset dataset = file.create_growable_dataset(name, Hdf5TypeOf<typename decltype(values)::value_type>::value);
    dataset.append(values);
    file.finish(dataset);
    file.close();
    publish_shard(folder.file("t"), folder.file("p"), 0, 1, 5);
    require_error(ErrorKind::data, {path, name}, [&] { TokenShard shard(path); });
  };
  with("sentences", std::vector<std::uint64_t>{0, 4, 7});                       // fewer than documents
  with("sentences", std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 7, 7});  // more than tokens
  with("sentences", std::vector<std::uint32_t>{0, 4, 6, 7});
  with("continues", std::vector<std::uint8_t>(256, 0));
  with("continues", std::vector<std::uint16_t>(257, 0));
  with("paragraphs", std::vector<std::uint64_t>{0, 7});
}

TEST_CASE("shard: cut anywhere, it is refused", "[shard][fault-10]") {
  ShardFolder folder;
  Documents documents;
  for (std::int32_t i = 0; i < 300; ++i) documents.emplace_back(static_cast<std::size_t>(100 + i), i % 257);
  make_shard(folder.file("p"), documents);
  const std::string whole = contents_of(shard_path(folder.file("p"), 0));
  REQUIRE(shard_contents(shard_path(folder.file("p"), 0)).has_value());
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t bytes = i == 0 ? whole.size() - 1 : draw(i, whole.size());
    INFO("cut to " << bytes << " of " << whole.size());
    write_file(folder.file("cut.h5"), whole.substr(0, bytes));
    CHECK_FALSE(shard_contents(folder.file("cut.h5")).has_value());
  }
}

TEST_CASE("shard: a flipped bit is refused, or changes nothing", "[shard][fault-11]") {
  ShardFolder folder;
  Documents documents;
  for (std::int32_t i = 0; i < 200; ++i) documents.emplace_back(static_cast<std::size_t>(100 + i), i % 257);
  make_shard(folder.file("p"), documents);
  const std::string whole = contents_of(shard_path(folder.file("p"), 0));
  const auto expected = shard_contents(shard_path(folder.file("p"), 0));
  REQUIRE(expected.has_value());
  int refused = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    std::string damaged = whole;
    // A third of the flips goes to the first 2 KiB, where the metadata are.
    const std::uint64_t at = i % 3 == 0 ? draw(i, 2048) : draw(i, whole.size());
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << draw(i + 7, 8)));
    INFO("byte " << at << " of " << whole.size());
    write_file(folder.file("flip.h5"), damaged);
    const auto found = shard_contents(folder.file("flip.h5"));
    refused += found.has_value() ? 0 : 1;
    if (found.has_value()) CHECK(*found == *expected);
  }
  CHECK(refused > 300);
}

TEST_CASE("shard: a published set stays if leftovers cannot be removed", "[data]") {
  const ShardFolder folder;
  const std::string sets = folder.file("sets"), prefix = sets + "/a", elsewhere = folder.file("elsewhere");
  std::filesystem::create_directory(sets);
  ShardSetFiles files(prefix);
  TokenShardWriter writer(files.begin_part(0), small_vocabulary());
  writer.add_document(std::vector<std::int32_t>{1, 2});
  const ShardSummary part{writer.documents(), writer.tokens(), writer.finish()};
  files.publish({&part, 1});
  files.commit();
  std::filesystem::rename(sets, elsewhere);  // nothing can be listed or flushed there
  CHECK_NOTHROW(files.remove_leftovers());
  CHECK(shard_contents(elsewhere + "/a-00000.h5")->tokens == std::vector<std::int32_t>{1, 2});
}
