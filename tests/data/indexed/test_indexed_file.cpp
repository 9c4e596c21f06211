// Megatron-LM's indexed data sets: against files that numpy wrote (scripts/oracles/indexed_files.py), byte by byte.
#include "data/indexed/indexed_reader.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/indexed/conversion.h"
#include "support/data_support.h"
#include "support/memory_limit.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const std::string kGolden = MEGATRON_GOLDEN_FOLDER "/indexed/";

const json& contents() {
  static const json file = [] {
    std::ifstream stream(kGolden + "contents.json");
    return json::parse(stream);
  }();
  return file;
}

Documents documents_of(const std::string& path) {
  TokenDataset dataset(path);
  Documents documents;
  visit_documents(dataset,
                  [&](std::span<const std::int32_t> tokens) { documents.emplace_back(tokens.begin(), tokens.end()); });
  return documents;
}

ImportJob job_of(const ShardFolder& folder, const std::string& name) {
  ImportJob job;
  job.overwrite = true;
  job.source = kGolden + name;
  job.target = folder.file(name);
  job.vocabulary = {"ids", 0, 70001, 70000};
  job.shard_bytes = 4096;
  return job;
}

/// An index and tokens that a test has changed.
struct ChangedFiles {
  ShardFolder folder;
  std::string index, tokens;

  explicit ChangedFiles(const std::string& name)
      : index(contents_of(kGolden + name + ".idx")), tokens(contents_of(kGolden + name + ".bin")) {}

  template <class T>
  void put(std::size_t at, T number) {
    REQUIRE(at + sizeof(T) <= index.size());
    std::memcpy(index.data() + at, &number, sizeof(T));
  }
  void require_refused(const std::vector<std::string>& parts) const {
    write_file(folder.file("x.idx"), index);
    write_file(folder.file("x.bin"), tokens);
    require_error(ErrorKind::data, parts, [&] { IndexedReader(folder.file("x")); });
  }
};

}  // namespace

TEST_CASE("indexed files: files of numpy are read and written with equal bytes") {
  const ShardFolder folder;
  for (const char* name : {"two", "many", "wide", "bytes", "signed", "short", "longs", "older", "older_wide"}) {
    INFO(name);
    const json& expected = contents().at(name);
    ImportJob job = job_of(folder, name);
    const ConversionSummary in = import_indexed(job);
    CHECK(name_of(in.type) == expected.at("dtype").get<std::string>());
    CHECK(documents_of(job.target) == expected.at("sequences").get<Documents>());
    const ConversionSummary out = export_indexed(job.target, folder.file("again"), in.type, true);
    CHECK(out.tokens == in.tokens);
    CHECK(contents_of(folder.file("again.bin")) == contents_of(kGolden + name + ".bin"));
    const std::string same_tokens = std::string(name) == "older" ? "many" : name;
    if (same_tokens != "older_wide") {
      CHECK(contents_of(folder.file("again.idx")) == contents_of(kGolden + same_tokens + ".idx"));
    }
  }
  // Two documents of three and two tokens: 34 bytes of header, 8 of lengths, 16 of offsets, 24 of the document index.
  CHECK(contents_of(kGolden + "two.idx").size() == 82);
}

TEST_CASE("indexed files: without a type the one that Megatron chooses is written") {
  CHECK(indexed_type_for(65499) == IndexedType::u16);
  CHECK(indexed_type_for(65500) == IndexedType::i32);
  CHECK(indexed_type("int64") == IndexedType::i64);
  require_error(ErrorKind::configuration, {"\"float32\"", "uint16"}, [] { indexed_type("float32"); });
  const ShardFolder folder;
  ImportJob job = job_of(folder, "two");
  job.source += ".idx";  // as completion by the shell gives it
  job.vocabulary = {"ids", 0, 65500, 0};
  import_indexed(job);
  CHECK(export_indexed(job.target, folder.file("out.bin"), {}).type == IndexedType::i32);
  CHECK(export_indexed(job.target, folder.file("out"), IndexedType::u16, true).type == IndexedType::u16);
  CHECK(contents_of(folder.file("out.idx")) == contents_of(kGolden + "two.idx"));
  require_error(ErrorKind::data, {"65499 does not fit into int16", "--dtype"},
                [&] { export_indexed(job.target, folder.file("failed"), IndexedType::i16); });
  for (const std::string& name : folder.files()) CHECK_FALSE(name.starts_with("failed"));
}

TEST_CASE("indexed files: sentences, and documents without tokens, are a decision") {
  const ShardFolder folder;
  ImportJob job = job_of(folder, "sentences");
  require_error(ErrorKind::data, {"4 sequences in 3 documents", "--documents joined", "--documents sequences"},
                [&] { import_indexed(job); });
  job.documents = ImportedDocuments::sequences;
  import_indexed(job);
  CHECK(documents_of(job.target) == Documents{{1, 2}, {3}, {4, 5, 6}, {7}});
  job.documents = ImportedDocuments::joined;
  require_error(ErrorKind::data, {"document 1 has no tokens", "--skip-empty"}, [&] { import_indexed(job); });
  CHECK(documents_of(job.target) == Documents{{1, 2}, {3}, {4, 5, 6}, {7}});  // the old target is unchanged
  job.skip_empty = true;
  CHECK(import_indexed(job).empty == 1);
  CHECK(documents_of(job.target) == Documents{{1, 2, 3}, {4, 5, 6, 7}});
  job.documents = ImportedDocuments::sentences;
  job.skip_empty = false;
  require_error(ErrorKind::data, {"document 1 has no tokens", "--skip-empty"}, [&] { import_indexed(job); });
  ImportJob empty = job_of(folder, "with_empty");
  empty.skip_empty = true;
  CHECK(import_indexed(empty).documents == 2);
}

TEST_CASE("indexed files: documents of several sequences survive a round trip") {
  const ShardFolder folder;
  ImportJob job = job_of(folder, "sentences");
  job.documents = ImportedDocuments::sentences;
  job.skip_empty = true;
  import_indexed(job);
  CHECK(documents_of(job.target) == Documents{{1, 2, 3}, {4, 5, 6, 7}});
  TokenDataset first(job.target);
  REQUIRE(first.has_sentences());
  CHECK(first.read_sentences() == std::vector<std::uint64_t>{0, 2, 3, 6, 7});
  export_indexed(job.target, folder.file("out"), {});
  const IndexedReader written(folder.file("out"));
  CHECK(written.lengths() == std::vector<std::uint32_t>{2, 1, 3, 1});
  CHECK(written.documents() == std::vector<std::uint64_t>{0, 2, 4});
  job.source = folder.file("out");
  job.target = folder.file("again");
  job.skip_empty = false;
  import_indexed(job);
  CHECK(TokenDataset(job.target).set_hash() == first.set_hash());
  export_indexed(job.target, folder.file("out2"), {});
  for (const char* end : {".bin", ".idx"}) {
    CHECK((contents_of(folder.file("out2") + end) == contents_of(folder.file("out") + end)));
  }
  // Merged, they are kept; with a set that lacks them, it is an error.
  merge_sets({job.target, folder.file("sentences")}, folder.file("both"), 4096);
  CHECK(TokenDataset(folder.file("both")).read_sentences() == std::vector<std::uint64_t>{0, 2, 3, 6, 7, 9, 10, 13, 14});
  job.documents = ImportedDocuments::joined;
  job.target = folder.file("joined");
  import_indexed(job);
  CHECK_FALSE(TokenDataset(job.target).has_sentences());
  require_error(ErrorKind::data, {"sentences", "joined", "does not"}, [&] {
    merge_sets({folder.file("again"), job.target}, folder.file("failed"), 4096);
  });
}

TEST_CASE("indexed files: ids outside the vocabulary leave nothing behind") {
  const ShardFolder folder;
  ImportJob job = job_of(folder, "wide");
  job.vocabulary = {"ids", 0, 70000, 0};
  require_error(ErrorKind::data, {"wide.bin", "token 1 has id 70000", "70000 tokens"}, [&] { import_indexed(job); });
  ImportJob negative = job_of(folder, "negative");
  require_error(ErrorKind::data, {"negative.bin", "token 1 is -2"}, [&] { import_indexed(negative); });
  CHECK(folder.files().empty());
}

TEST_CASE("indexed files: crafted indices are refused before memory is taken", "[fault]") {
  const MemoryLimit limit(std::uint64_t{256} << 20);
  for (const std::uint64_t many : {std::uint64_t{3}, std::uint64_t{1} << 40, std::uint64_t{1} << 61, UINT64_MAX,
                                   UINT64_MAX / 12 + 1, UINT64_MAX / 8 + 1}) {
    INFO(many);
    ChangedFiles sequences("two"), documents("two"), older("older"), older_lengths("older"), older_documents("older");
    sequences.put(18, many);
    sequences.require_refused({"x.idx"});
    documents.put(26, many == 3 ? 4 : many);  // 3 is right
    documents.require_refused({"x.idx"});
    older.put(32, many);
    older.require_refused({"x.idx"});
    older_lengths.put(40, many);
    older_lengths.require_refused({"x.idx"});
    older_documents.put(48, many);
    older_documents.require_refused({"x.idx"});
  }
}

TEST_CASE("indexed files: four bytes per sequence also while documents are read", "[fault]") {
#ifdef MEGATRON_TEST_SANITIZED
  std::cout << "SKIPPED: four bytes a sequence; a sanitizer ends the program where memory does\n";
#else
  constexpr std::uint64_t n = 2'000'000;
  const ShardFolder folder;
  {
    std::ofstream index(folder.file("x.idx"), std::ios::binary);
    const auto put = [&](auto number) { index.write(reinterpret_cast<const char*>(&number), sizeof(number)); };
    index.write("MMIDIDX\0\0", 9);
    put(std::uint64_t{1});
    put(std::uint8_t{8});
    put(n);
    put(n + 1);
    for (std::uint64_t i = 0; i < n; ++i) put(std::int32_t{0});
    for (std::uint64_t i = 0; i < n; ++i) put(std::uint64_t{0});
    for (std::uint64_t i = 0; i <= n; ++i) put(i);
  }
  write_file(folder.file("x.bin"), "");
  const MemoryLimit limit(4 * n + (std::uint64_t{4} << 20));
  const IndexedReader reader(folder.file("x"));
  CHECK(reader.sequences() == n);
  CHECK((reader.documents().empty() && reader.document_problem().empty()));
#endif
}

TEST_CASE("indexed files: what contradicts itself is refused by name", "[fault]") {
  struct Case {
    const char* name;
    std::function<void(ChangedFiles&)> change;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"two", [](ChangedFiles& f) { f.index[0] = 'X'; }, {"neither", "MMIDIDX"}},
      {"two", [](ChangedFiles& f) { f.index[8] = 'X'; }, {"neither", "MMIDIDX"}},
      {"two", [](ChangedFiles& f) { f.index.clear(); }, {"too short"}},
      {"two", [](ChangedFiles& f) { f.index.resize(20); }, {"too short"}},
      {"two", [](ChangedFiles& f) { f.index.pop_back(); }, {"do not fit into"}},
      {"two", [](ChangedFiles& f) { f.index += std::string(2, '\0'); }, {"2 bytes after", "multimodal"}},
      {"two", [](ChangedFiles& f) { f.put<std::uint64_t>(9, 2); }, {"version 2"}},
      {"two", [](ChangedFiles& f) { f.put<std::uint8_t>(17, 7); }, {"type 7", "floating-point"}},
      {"two", [](ChangedFiles& f) { f.put<std::uint8_t>(17, 9); }, {"type 9"}},
      {"two", [](ChangedFiles& f) { f.put<std::int32_t>(34, -3); }, {"sequence 0", "length of -3"}},
      {"two", [](ChangedFiles& f) { f.put<std::int64_t>(50, 8); }, {"sequence 1", "byte 8", "make 6", "2^31"}},
      {"two", [](ChangedFiles& f) { f.put<std::int64_t>(42, -6); }, {"sequence 0", "byte -6"}},
      {"two", [](ChangedFiles& f) { f.put<std::int32_t>(38, 3); }, {"x.bin: 10 bytes", "6 tokens of 2 bytes"}},
      {"two", [](ChangedFiles& f) { f.tokens.pop_back(); }, {"x.bin: 9 bytes"}},
      {"two", [](ChangedFiles& f) { f.tokens += "12"; }, {"x.bin: 12 bytes"}},
      {"older", [](ChangedFiles& f) { f.put<std::uint64_t>(24, 4); }, {"uint16 with 4 bytes"}},
      {"older", [](ChangedFiles& f) { f.put<std::int64_t>(56 + 8, 2); }, {"sequence 1", "one length"}},
      {"older", [](ChangedFiles& f) { f.put<std::int64_t>(56 + 8 * 41, 1); }, {"begins at element 1"}},
      {"older", [](ChangedFiles& f) { f.put<std::int64_t>(56 + 8 * 42, -1); }, {"ends before"}},
      {"older", [](ChangedFiles& f) { f.put<std::int64_t>(56 + 8 * 42, std::int64_t{1} << 40); }, {"length of"}},
      {"older", [](ChangedFiles& f) { f.put<std::int64_t>(56 + 8 * 82, 99); }, {"a length of 99"}},
  };
  for (const Case& c : cases) {
    INFO(c.parts.front());
    ChangedFiles files(c.name);
    c.change(files);
    files.require_refused(c.parts);
  }
}

TEST_CASE("indexed files: a damaged document index is reported and can be skipped") {
  ChangedFiles files("two");
  files.put<std::int64_t>(74, 1);  // it ends with 1
  write_file(files.folder.file("x.idx"), files.index);
  write_file(files.folder.file("x.bin"), files.tokens);
  ImportJob job = job_of(files.folder, "two");
  job.source = files.folder.file("x");
  require_error(ErrorKind::data, {"ends with 1 instead of 2", "--documents sequences"}, [&] { import_indexed(job); });
  job.documents = ImportedDocuments::joined;
  require_error(ErrorKind::data, {"damaged", "ends with 1"}, [&] { import_indexed(job); });
  job.documents = ImportedDocuments::sequences;
  CHECK(import_indexed(job).documents == 2);
}

TEST_CASE("merge: documents in the order of the sources, in new shards") {
  const ShardFolder folder;
  make_shard(folder.file("a"), {{1}, {2, 3}}, 0, 2);
  make_shard(folder.file("a"), {{4}}, 1, 2);
  make_shard(folder.file("b"), {std::vector<std::int32_t>(3000, 5), {6}, {7}});
  const ConversionSummary done = merge_sets({folder.file("b"), folder.file("a")}, folder.file("m"), 4096);
  CHECK(done.documents == 6);
  CHECK(done.tokens == 3006);
  CHECK(done.shards == 2);  // 2048 tokens end one
  CHECK(documents_of(folder.file("m")) == Documents{std::vector<std::int32_t>(3000, 5), {6}, {7}, {1}, {2, 3}, {4}});
  // Again, shorter: nothing of the longer set is left.
  require_error(ErrorKind::configuration, {"m-00000.h5 already holds another set of 2 shards", "--overwrite"},
                [&] { merge_sets({folder.file("a")}, folder.file("m"), 1 << 20); });
  CHECK(TokenDataset(folder.file("m")).documents() == 6);
  merge_sets({folder.file("a")}, folder.file("m"), 1 << 20, true);
  CHECK(documents_of(folder.file("m")) == Documents{{1}, {2, 3}, {4}});
  CHECK_FALSE(std::filesystem::exists(folder.file("m-00001.h5")));
  make_shard(folder.file("c"), {{1}}, 0, 1, small_vocabulary(300));
  require_error(ErrorKind::data, {"c was made with another tokenizer"}, [&] {
    merge_sets({folder.file("a"), folder.file("c")}, folder.file("n"), 4096);
  });
  require_error(ErrorKind::configuration, {"is a source and the target"}, [&] {
    merge_sets({folder.file("b"), folder.file("a")}, folder.file("a"), 4096);
  });
  make_shard(folder.file("d"), {{1}, {2, 256}});  // as if of both kinds by itself
  make_shard(folder.file("e"), {{1, 256}, {2, 256}});
  require_error(ErrorKind::data,
                {"e-00000.h5: its first document ends with",
                 "a-00000.h5: its first document does not, but with token 1", "--no-append-eod"},
                [&] {
                  merge_sets({folder.file("e"), folder.file("a")}, folder.file("n"), 4096);
                });
  require_error(ErrorKind::data, {"d-00000.h5: its last document ends with the end of document, 256", "first"},
                [&] { merge_sets({folder.file("d")}, folder.file("n"), 4096); });
  CHECK_FALSE(std::filesystem::exists(folder.file("n-00000.h5")));
  CHECK(merge_sets({folder.file("e"), folder.file("e")}, folder.file("n"), 4096).documents == 4);
}
