// Text to shards with the gpt2 tokenizer: its vocabulary lies next to the shards, and what it cannot encode is said.
#include <iostream>
#include <map>

#include "data/preprocess/preprocess_support.h"
#include "data/shards/shard_set.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "programs/sample_corpus.h"
#include "support/memory_limit.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string golden(const std::string& file) {
  return std::string(MEGATRON_GOLDEN_FOLDER) + "/bpe/" + file;
}

PreprocessJob gpt2_job(const ShardFolder& folder, const std::vector<std::string>& inputs) {
  PreprocessJob job = job_of(folder, inputs);
  job.tokenizer = {"gpt2", golden(kVocabFile), golden(kMergeFile)};
  return job;
}

}  // namespace

TEST_CASE("preprocess: the gpt2 vocabulary is kept and gives the texts back", "[preprocess]") {
  ShardFolder folder;
  std::string input;
  std::vector<std::string> expected;
  for (std::uint64_t i = 0; i < 300; ++i) {
    expected.push_back(sample_story(5, i) + (i % 3 == 0 ? " \xE2\x82\xAC\r\n\n  <|endoftext|>" : ""));
    input += json_line(expected.back());
  }
  write_file(folder.file("a.jsonl"), input);
  const PreprocessJob job = gpt2_job(folder, {"a.jsonl"});
  std::map<std::string, std::string> bytes;
  for (const std::uint64_t ranks : {1ull, 3ull}) {
    run(job, ranks);
    std::map<std::string, std::string> made;
    for (const std::string& name : folder.files()) {
      if (name.starts_with("p")) made[name] = contents_of(folder.file("out/" + name));
    }
    CHECK((made.size() > 10 && made.count("p.vocab.json") == 1));
    if (bytes.empty()) bytes = made;
    CHECK((made == bytes));
  }
  CHECK((bytes.at("p.vocab.json") == contents_of(golden(kVocabFile))));
  CHECK((bytes.at("p.merges.txt") == contents_of(golden(kMergeFile))));
  const auto tokenizer =
      make_tokenizer({"gpt2", vocabulary_path(job.output, kVocabFile), vocabulary_path(job.output, kMergeFile)});
  TokenDataset dataset(job.output);
  CHECK(dataset.vocabulary() == vocabulary_of(*tokenizer));
  REQUIRE(dataset.documents() == expected.size());
  for (std::uint64_t i = 0; i < dataset.documents(); ++i) {
    const std::uint64_t first = dataset.document_start(i), count = dataset.document_start(i + 1) - first;
    std::vector<std::int32_t> ids(count);
    dataset.read(first, count, ids.data());
    CHECK(ids.back() == tokenizer->eod_id());
    CHECK(tokenizer->decode(ids) == expected[i]);
  }
}

TEST_CASE("preprocess: errors leave no vocabulary, and an older one as it was", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("good"));
  write_file(folder.file("b.jsonl"), json_line("good") + "bad\n");
  require_clean_error(folder, gpt2_job(folder, {"b.jsonl"}), ErrorKind::data, {"b.jsonl:2:"});
  std::filesystem::create_directories(folder.file("out"));
  write_file(folder.file("out/p.vocab.json"), "older");
  require_clean_error(folder, gpt2_job(folder, {"b.jsonl"}), ErrorKind::data, {"b.jsonl:2:"});
  write_file(folder.file("out/p.merges.txt.0123abcd.tmp"), "of a killed run");
  CHECK(contents_of(folder.file("out/p.vocab.json")) == "older");
  run(gpt2_job(folder, {"a.jsonl"}));
  CHECK(folder.files() == std::vector<std::string>{"a.jsonl", "b.jsonl", "p-00000.h5", "p.merges.txt", "p.vocab.json"});
  CHECK((contents_of(folder.file("out/p.vocab.json")) == contents_of(golden(kVocabFile))));
  PreprocessJob job = job_of(folder, {"a.jsonl"});
  job.tokenizer.name = "gpt2";
  require_clean_error(folder, job, ErrorKind::configuration, {"--vocab-file", "download_vocab.sh"});
  job.tokenizer.vocab_file = job.tokenizer.merge_file = golden(kMergeFile);
  require_clean_error(folder, job, ErrorKind::data, {"merges.txt:1:", "JSON"});
}

TEST_CASE("preprocess: a vocabulary is removed only for one of the same name", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("good"));
  std::filesystem::create_directories(folder.file("out"));
  const std::string users = folder.file("out/p.vocab.json"), other = folder.file("out/p.tokenizer.json");
  write_file(users, "a user's");
  write_file(users + ".replaced", "what a killed run took its name from");
  run(job_of(folder, {"a.jsonl"}), 2);
  CHECK(contents_of(users) == "a user's");
  CHECK(std::filesystem::exists(users + ".replaced"));
  ShardSetWriter writer(folder.file("out/p"), small_vocabulary(), 4096);
  writer.add_document(std::vector<std::int32_t>{1, 2});
  writer.finish(true);
  CHECK(contents_of(users) == "a user's");

  const auto files_beside = [](const std::vector<std::string>& prefixes) {
    std::vector<std::unique_ptr<TokenDataset>> sets;
    for (const std::string& prefix : prefixes) sets.push_back(std::make_unique<TokenDataset>(prefix));
    std::vector<std::string> names;
    for (const VocabularyFile& file : vocabulary_files_of(sets)) names.push_back(file.name);
    return names;
  };
  const std::vector<std::string> right{"vocab.json", "merges.txt"};
  std::filesystem::copy_file(std::string(MEGATRON_GOLDEN_FOLDER) + "/tokenizer_json/plain.json", other);
  PreprocessJob job = gpt2_job(folder, {"a.jsonl"});
  run(job, 2);
  CHECK(std::filesystem::exists(other));
  CHECK_FALSE(std::filesystem::exists(users + ".replaced"));
  CHECK(files_beside({job.output}) == right);
  // Next to any of several sets; those that are there must be the right ones for one set at least.
  job.output = folder.file("out/q");
  run(job);
  std::filesystem::remove(folder.file("out/q.merges.txt"));
  CHECK(files_beside({job.output}).empty());
  CHECK(files_beside({job.output, folder.file("out/p")}) == right);
  CHECK(files_beside({folder.file("out")}) == right);
  // A damaged file, or one of another vocabulary, next to one set is no reason to do without that of another.
  write_file(folder.file("out/q.tokenizer.json"), "{");
  CHECK(files_beside({job.output, folder.file("out/p")}) == right);
  write_file(other, "{");
  CHECK(files_beside({folder.file("out/p")}) == right);
  std::filesystem::copy_file(std::string(MEGATRON_GOLDEN_FOLDER) + "/tokenizer_json/plain.json", other,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::remove(users);
  require_error(ErrorKind::data, {"p.tokenizer.json: another vocabulary", "q.tokenizer.json:1:", "hash"}, [&] {
    files_beside({folder.file("out/p"), job.output});
  });
}

TEST_CASE("preprocess: a set that cannot take all names leaves the older one", "[preprocess][fault]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("older"));
  run(gpt2_job(folder, {"a.jsonl"}));
  const std::string shard = contents_of(folder.file("out/p-00000.h5"));
  write_file(folder.file("b.jsonl"), json_line(std::string(9000, 'b')) + json_line("c"));
  std::filesystem::create_directories(folder.file("out/p-00001.h5"));
  require_clean_error(folder, gpt2_job(folder, {"b.jsonl"}), ErrorKind::filesystem, {"p-00001.h5", "a folder"});
  CHECK((contents_of(folder.file("out/p-00000.h5")) == shard));
  const auto write = [&] {
    ShardSetWriter writer(folder.file("out/p"), small_vocabulary(), 2, {{kVocabFile, "another"}});
    for (int i = 0; i < 2; ++i) writer.add_document(std::vector<std::int32_t>{1, 2});
    writer.finish(true);
  };
  const std::vector<std::string> before = folder.files();
  require_error(ErrorKind::filesystem, {"p-00001.h5", "a folder"}, write);
  CHECK(folder.files() == before);
  CHECK((contents_of(folder.file("out/p-00000.h5")) == shard));
  CHECK((contents_of(folder.file("out/p.vocab.json")) == contents_of(golden(kVocabFile))));
  std::filesystem::remove(folder.file("out/p-00001.h5"));
  write();
  CHECK(TokenDataset(folder.file("out/p")).shards() == 2);
}

TEST_CASE("preprocess: a word too long to be merged is a bad document", "[preprocess][fault-16]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("a") + json_line(std::string(kLongestPiece + 1, 'a')) + json_line("b"));
  PreprocessJob job = gpt2_job(folder, {"a.jsonl"});
  require_clean_error(folder, job, ErrorKind::data, {"a.jsonl:2: a word of 67108865 bytes", "--skip-bad"});
  job.inputs.skip_bad = true;
  const BlockSummary sum = run(job);
  CHECK((sum.documents == 2 && sum.bad == 1));
}

TEST_CASE("preprocess: a document that needs too much memory is a bad one", "[preprocess][fault-16]") {
#ifdef MEGATRON_TEST_SANITIZED
  std::cout << "SKIPPED: too little memory; a sanitizer ends the program where memory does\n";
#else
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("a") + json_line(std::string(20'000'000, 'a')) + json_line("b"));
  PreprocessJob job = gpt2_job(folder, {"a.jsonl"});
  job.inputs.skip_bad = true;
  job.shard_bytes = 1 << 30;
  const MemoryLimit limit(std::uint64_t{256} << 20);  // for all but the merges, which would take some 480 MB
  const BlockSummary sum = run(job);
  CHECK((sum.documents == 2 && sum.bad == 1));
  job.inputs.skip_bad = false;
  require_error(ErrorKind::data, {"a.jsonl:2: too little memory to encode this document"}, [&] { run(job); });
#endif
}

TEST_CASE("preprocess: shards of another vocabulary of equal size are told apart", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line(std::string(9000, 'a')) + json_line("b"));
  PreprocessJob job = gpt2_job(folder, {"a.jsonl"});
  run(job);
  std::string merges = contents_of(golden(kMergeFile));
  // The last two merges, which are of bytes, change places: the same tokens with the same ids for other texts.
  const std::size_t last = merges.rfind('\n', merges.size() - 2) + 1, before = merges.rfind('\n', last - 2) + 1;
  merges = merges.substr(0, before) + merges.substr(last) + merges.substr(before, last - before);
  write_file(folder.file("merges.txt"), merges);
  job.tokenizer.merge_file = folder.file("merges.txt");
  job.output = folder.file("out/q");
  run(job);
  TokenDataset p(folder.file("out/p")), q(folder.file("out/q"));
  CHECK(p.vocabulary().size == q.vocabulary().size);
  CHECK(p.vocabulary().hash != q.vocabulary().hash);
  REQUIRE(p.shards() == 2);
  std::filesystem::copy_file(shard_path(q.prefix(), 1), shard_path(p.prefix(), 1),
                             std::filesystem::copy_options::overwrite_existing);
  require_error(ErrorKind::data, {"p-00001.h5", "another tokenizer", "hash"},
                [&] { TokenDataset mixed(folder.file("out/p")); });
}
