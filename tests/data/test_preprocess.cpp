// Text to shards: the same bytes for any number of ranks, every error with its file and line and nothing left behind.
#include <sys/resource.h>

#include <csignal>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/philox.h"
#include "data/preprocess.h"
#include "data/sample_corpus.h"
#include "data/token_dataset.h"
#include "data_support.h"
#include "support/memory_limit.h"

using namespace megatron;
using namespace megatron::test;

namespace {

PreprocessJob job_of(const ShardFolder& folder, const std::vector<std::string>& inputs) {
  PreprocessJob job;
  for (const std::string& input : inputs) job.inputs.push_back(folder.file(input));
  job.output = folder.file("out/p");
  job.shard_bytes = 4096;
  return job;
}

/// What the program does, with `ranks` ranks that take turns. Returns the blocks' sum.
BlockSummary run(const PreprocessJob& job, std::uint64_t ranks = 1) {
  std::vector<std::unique_ptr<Preprocessor>> workers;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) workers.push_back(std::make_unique<Preprocessor>(job));
  std::vector<BlockSummary> all;
  for (std::uint64_t block = 0; block < workers[0]->blocks(); ++block) {
    all.push_back(workers[block % ranks]->process(block));
  }
  for (auto& worker : workers) worker->publish(all);
  for (auto& worker : workers) worker->finish(all, worker == workers[0]);
  BlockSummary sum;
  for (const BlockSummary& block : all) {
    sum.documents += block.documents;
    sum.tokens += block.tokens;
    sum.bad += block.bad;
    sum.empty += block.empty;
  }
  return sum;
}

/// The documents of a finished set as texts; the end-of-document token is shown as '|'.
std::vector<std::string> texts_of(const std::string& prefix) {
  TokenDataset dataset(prefix);
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < dataset.documents(); ++i) {
    const std::uint64_t first = dataset.document_start(i), count = dataset.document_start(i + 1) - first;
    std::vector<std::int32_t> ids(count);
    dataset.read(first, count, ids.data());
    std::string text;
    for (const std::int32_t id : ids) text.push_back(id == 256 ? '|' : static_cast<char>(id));
    texts.push_back(text);
  }
  return texts;
}

std::string json_line(const std::string& text) {
  return nlohmann::json{{"text", text}}.dump() + "\n";
}

/// `work` must fail as said and leave no file but the inputs.
void require_clean_error(const ShardFolder& folder, const PreprocessJob& job, ErrorKind kind,
                         const std::vector<std::string>& parts) {
  const std::vector<std::string> before = folder.files();
  require_error(kind, parts, [&] { run(job, 2); });
  CHECK(folder.files() == before);
}

}  // namespace

TEST_CASE("preprocess: one, three or seven ranks make the same bytes", "[preprocess]") {
  ShardFolder folder;
  std::vector<std::string> expected;
  std::string first, second;
  for (std::uint64_t i = 0; i < 120; ++i) {
    const std::string text = sample_story(3, i).substr(0, mix64(i) % 700 + 1) + (i % 10 == 0 ? "\xC3\xA4\n\"" : "");
    (i < 70 ? first : second) += json_line(text);
    expected.push_back(text + "|");
  }
  first.pop_back();  // a file need not end with a newline
  write_file(folder.file("a.jsonl"), first);
  write_file(folder.file("b.jsonl"), second);
  PreprocessJob job = job_of(folder, {"a.jsonl", "b.jsonl"});
  std::map<std::string, std::string> bytes;
  for (const std::uint64_t ranks : {1ull, 3ull, 7ull}) {
    run(job, ranks);
    CHECK(texts_of(job.output) == expected);
    std::map<std::string, std::string> made;
    for (const std::string& name : folder.files()) {
      if (name.ends_with(".h5")) made[name] = contents_of(folder.file("out/" + name));
    }
    CHECK(made.size() > 8);
    if (bytes.empty()) bytes = made;
    CHECK((bytes == made));
    std::filesystem::remove_all(folder.file("out"));
  }
}

TEST_CASE("preprocess: whatever the size of a block, every document is there once", "[preprocess]") {
  ShardFolder folder;
  std::string input;
  std::vector<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string text(static_cast<std::size_t>(i % 13 + 1), static_cast<char>('a' + i % 26));
    input += json_line(text);
    expected.push_back(text + "|");
  }
  input += json_line(std::string(20000, 'x'));  // over several blocks, some of which then have no document
  expected.push_back(std::string(20000, 'x') + "|");
  write_file(folder.file("a.jsonl"), input);
  PreprocessJob job = job_of(folder, {"a.jsonl"});
  for (const std::uint64_t bytes : {4096ull, 4097ull, 5003ull, 65536ull, 1ull << 40}) {
    job.shard_bytes = bytes;
    const BlockSummary sum = run(job, 2);
    CHECK(sum.documents == expected.size());
    CHECK((texts_of(job.output) == expected));  // and shards of the longer sets before are gone
  }
  CHECK(folder.files() == std::vector<std::string>{"a.jsonl", "p-00000.h5"});
}

TEST_CASE("preprocess: short, empty, CRLF, byte order mark, no end of document", "[preprocess][fault-16]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"),
             "\xEF\xBB\xBF{\"text\":\"a\"}\r\n\r\n  \n{\"x\":[1],\"text\":\"\"}\n"
             "{\"text\":\"line\\r\\nline \\u00e4\"}\r\n{\"text\":\"\\u0000\"}");
  PreprocessJob job = job_of(folder, {"a.jsonl"});
  const BlockSummary sum = run(job);
  CHECK(sum.documents == 3);
  CHECK(sum.empty == 1);
  CHECK(texts_of(job.output) == std::vector<std::string>{"a|", "line\r\nline \xC3\xA4|", std::string("\0|", 2)});
  job.append_eod = false;
  run(job);
  CHECK(texts_of(job.output) == std::vector<std::string>{"a", "line\r\nline \xC3\xA4", std::string("\0", 1)});
  write_file(folder.file("k.jsonl"), "{\"body\":\"b\"}\n");
  job.inputs = {folder.file("k.jsonl")};
  job.json_key = "body";
  run(job);
  CHECK(texts_of(job.output) == std::vector<std::string>{"b"});
}

TEST_CASE("preprocess: a line of 50 MB", "[preprocess][fault-16]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("first") + json_line(std::string(50'000'000, 'y')) + json_line("last"));
  PreprocessJob job = job_of(folder, {"a.jsonl"});
  job.shard_bytes = 1 << 20;
  CHECK(run(job, 3).tokens == 50'000'000 + 5 + 4 + 3);
  TokenDataset dataset(job.output);
  CHECK(dataset.documents() == 3);
  CHECK(dataset.shards() == 2);  // the last line begins 50 MB behind the others
}

TEST_CASE("preprocess: plain text is cut at paragraphs and loses nothing", "[preprocess]") {
  ShardFolder folder;
  std::string whole;
  for (std::uint64_t i = 0; whole.size() < 400000; ++i) {
    whole += sample_story(1, i) + (i % 7 == 0 ? "\n \n" : "\n");
  }
  write_file(folder.file("book.txt"), whole);
  PreprocessJob job = job_of(folder, {"book.txt"});
  std::vector<std::string> documents;
  for (const std::uint64_t bytes : {4096ull, 100000ull, 1ull << 30}) {
    job.shard_bytes = bytes;
    run(job, 2);
    const std::vector<std::string> found = texts_of(job.output);
    if (documents.empty()) documents = found;
    CHECK((found == documents));
  }
  CHECK(documents.size() == 7);  // 400 KB in pieces of 64 KiB
  std::string joined;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    CHECK(documents[i].back() == '|');
    if (i > 0) CHECK(joined.ends_with("\n \n"));
    joined += documents[i].substr(0, documents[i].size() - 1);
  }
  CHECK((joined == whole));

  // Without paragraphs: at lines. Without lines: not at all. CRLF becomes LF.
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += "0123456789\r\n";
  write_file(folder.file("lines.txt"), lines);
  write_file(folder.file("one.text"), std::string(200000, 'z'));
  job.inputs = {folder.file("lines.txt"), folder.file("one.text")};
  run(job);
  documents = texts_of(job.output);
  REQUIRE(documents.size() == 5);
  for (std::size_t i = 0; i < 4; ++i) CHECK(documents[i].starts_with("0123456789\n0123456789\n"));
  CHECK(documents[4].size() == 200001);
}

TEST_CASE("preprocess: one error, with file and line, and nothing left", "[preprocess][fault-16]") {
  ShardFolder folder;
  std::string good;
  for (std::uint64_t i = 0; i < 100; ++i) good += json_line(sample_story(1, i));
  struct Case {
    std::string line;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases{
      {"{\"text\":\"abc", {"not valid JSON", "byte"}},
      {"{\"text\":\"\x01\"}", {"not valid JSON", "U+0001", "byte 10"}},
      {"{\"text\":\"\\ud800\"}", {"not valid JSON"}},
      {"hello", {"not valid JSON"}},
      {"[\"text\"]", {"array instead of an object"}},
      {"{\"txt\":\"a\",\"url\":\"b\"}", {"no key \"text\"", "txt, url", "--json-key"}},
      {"{}", {"no key \"text\"", "none"}},
      {"{\"text\":5}", {"number instead of a string"}},
      {"{\"text\":\"\xFF\"}", {"invalid UTF-8", "0xff"}},
      {"{\"text\":\"\xC0\x80\"}", {"invalid UTF-8", "0xc0"}},
      {"{\"text\":\"\xED\xA0\x80\"}", {"invalid UTF-8"}},
      {"{\"text\":\"\xF4\x90\x80\x80\"}", {"invalid UTF-8"}},
      {"{\"text\":\"\xE2\x82", {"invalid UTF-8"}},
  };
  for (const Case& bad : cases) {
    // Line 102 of the second file; a second bad line must not be reported as well, or instead.
    write_file(folder.file("a.jsonl"), good);
    write_file(folder.file("b.jsonl"), good + "\n" + bad.line + "\r\n" + good + "worse\n");
    const PreprocessJob job = job_of(folder, {"a.jsonl", "b.jsonl"});
    std::vector<std::string> parts = bad.parts;
    parts.push_back(folder.file("b.jsonl:102: "));
    require_clean_error(folder, job, ErrorKind::data, parts);
    PreprocessJob tolerant = job;
    tolerant.skip_bad = true;
    const BlockSummary sum = run(tolerant, 2);
    CHECK(sum.bad == 2);
    CHECK(sum.documents == 300);
    std::filesystem::remove_all(folder.file("out"));
  }
  write_file(folder.file("t.txt"), "one\ntwo\nthr\xFF\n");
  require_clean_error(folder, job_of(folder, {"t.txt"}), ErrorKind::data, {folder.file("t.txt:3: "), "invalid UTF-8"});
}

TEST_CASE("preprocess: jobs that cannot be done", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("a"));
  write_file(folder.file("empty.jsonl"), "");
  write_file(folder.file("blank.jsonl"), "\n\n {\"text\":\"\"}\n");
  write_file(folder.file("a.dat"), json_line("a"));
  require_clean_error(folder, job_of(folder, {"missing.jsonl"}), ErrorKind::data, {"missing.jsonl", "No such file"});
  require_clean_error(folder, job_of(folder, {"a.jsonl", "missing.txt"}), ErrorKind::data, {"missing.txt"});
  require_clean_error(folder, job_of(folder, {"a.dat"}), ErrorKind::configuration, {"a.dat", "--format"});
  for (const char* name : {"empty.jsonl", "blank.jsonl"}) {
    require_clean_error(folder, job_of(folder, {name}), ErrorKind::data, {name, "no text"});
  }
  PreprocessJob job = job_of(folder, {"a.jsonl"});
  job.tokenizer.name = "nothing";
  require_clean_error(folder, job, ErrorKind::configuration, {"nothing", "byte"});
  job = job_of(folder, {"a.jsonl"});
  job.format = "csv";
  require_clean_error(folder, job, ErrorKind::configuration, {"csv", "jsonl"});
  job = job_of(folder, {"a.jsonl"});
  job.shard_bytes = 100;
  require_clean_error(folder, job, ErrorKind::configuration, {"--shard-bytes"});
  job = job_of(folder, {"a.jsonl"});
  job.output = folder.file("a.jsonl/p");
  require_clean_error(folder, job, ErrorKind::filesystem, {"a.jsonl", "folder"});
  job = job_of(folder, {"a.dat"});
  job.format = "jsonl";
  CHECK(run(job).documents == 1);
}

TEST_CASE("preprocess: a full disk leaves nothing, and an older set as it was", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("small.jsonl"), json_line("old"));
  write_file(folder.file("large.jsonl"), json_line(std::string(3'000'000, 'x')));
  PreprocessJob job = job_of(folder, {"small.jsonl"});
  run(job);
  job.inputs = {folder.file("small.jsonl"), folder.file("large.jsonl")};
  job.shard_bytes = 1 << 20;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const rlimit small{1 << 20, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string message;
  ErrorKind kind = ErrorKind::internal;
  try {
    run(job, 2);
  } catch (const Error& error) {
    message = error.what();
    kind = error.kind();
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
  CHECK(kind == ErrorKind::filesystem);
  CHECK(message.find("File too large") != std::string::npos);
  CHECK(folder.files() == std::vector<std::string>{"large.jsonl", "p-00000.h5", "small.jsonl"});
  CHECK(texts_of(job.output) == std::vector<std::string>{"old|"});
}

TEST_CASE("preprocess: what a killed run has left goes away with the next one", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("a"));
  std::filesystem::create_directories(folder.file("out"));
  write_file(folder.file("out/p-part-00000.h5.tmp"), "half");
  write_file(folder.file("out/p-part-00009.h5.tmp"), "half");
  write_file(folder.file("out/p-00001.h5"), "old");
  write_file(folder.file("out/p-00001.h5.backup"), "not ours");
  write_file(folder.file("out/pq-00001.h5"), "not ours");
  run(job_of(folder, {"a.jsonl"}));
  CHECK(folder.files() == std::vector<std::string>{"a.jsonl", "p-00000.h5", "p-00001.h5.backup", "pq-00001.h5"});
}

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

TEST_CASE("preprocess: the gpt2 vocabulary is kept beside its shards, and gives the texts back", "[preprocess]") {
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
    CHECK((made.size() > 10 && made.count("p.vocab.json.tmp") == 0));
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
  write_file(folder.file("out/p.merges.txt.tmp"), "of a killed run");
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

TEST_CASE("preprocess: shards made again without a vocabulary do not keep the old one", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("good"));
  run(gpt2_job(folder, {"a.jsonl"}), 2);
  write_file(folder.file("out/q.vocab.json"), "of another set");
  run(job_of(folder, {"a.jsonl"}), 2);
  CHECK(folder.files() == std::vector<std::string>{"a.jsonl", "p-00000.h5", "q.vocab.json"});
}

TEST_CASE("preprocess: a word too long to be merged is a bad document", "[preprocess][fault-16]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("a") + json_line(std::string(kLongestPiece + 1, 'a')) + json_line("b"));
  PreprocessJob job = gpt2_job(folder, {"a.jsonl"});
  require_clean_error(folder, job, ErrorKind::data, {"a.jsonl:2: a word of 67108865 bytes", "--skip-bad"});
  job.skip_bad = true;
  const BlockSummary sum = run(job);
  CHECK((sum.documents == 2 && sum.bad == 1));
}

TEST_CASE("preprocess: a document for which there is too little memory is a bad one", "[preprocess][fault-16]") {
#ifdef MEGATRON_TEST_SANITIZED
  std::cout << "SKIPPED: too little memory; a sanitizer ends the program where memory does\n";
#else
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("a") + json_line(std::string(20'000'000, 'a')) + json_line("b"));
  PreprocessJob job = gpt2_job(folder, {"a.jsonl"});
  job.skip_bad = true;
  job.shard_bytes = 1 << 30;
  const MemoryLimit limit(std::uint64_t{256} << 20);  // for all but the merges, which would take some 480 MB
  const BlockSummary sum = run(job);
  CHECK((sum.documents == 2 && sum.bad == 1));
  job.skip_bad = false;
  require_error(ErrorKind::data, {"a.jsonl:2: too little memory to encode this document"}, [&] { run(job); });
#endif
}

TEST_CASE("preprocess: shards made with another vocabulary of the same size are told apart", "[preprocess]") {
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

TEST_CASE("sample corpus: the same on every machine, and of the size asked for", "[corpus]") {
  ShardFolder folder;
  const SampleCorpusSummary summary = write_sample_corpus(folder.file("c.jsonl"), 200000, 1);
  const std::string corpus = contents_of(folder.file("c.jsonl"));
  CHECK(summary.bytes == corpus.size());
  CHECK((corpus.size() >= 200000 && corpus.size() < 202000));
  CHECK(folder.files() == std::vector<std::string>{"c.jsonl"});
  std::uint64_t number = 0;
  std::set<std::string> different;
  std::istringstream lines(corpus);
  for (std::string line; std::getline(lines, line); ++number) {
    const std::string text = nlohmann::json::parse(line)["text"];
    CHECK(text == sample_story(1, number));
    CHECK(text.find_first_of("{}") == std::string::npos);  // every placeholder was filled
    different.insert(text);
  }
  CHECK(number == summary.stories);
  CHECK(different.size() == number);
  CHECK(sample_story(1, 0) != sample_story(2, 0));
  CHECK(hash_name(corpus) == 0x24c248020c4f8c00);  // changes with every change of the stories
}
