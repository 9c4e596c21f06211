// Text to shards: the same bytes for any number of ranks, every error with its file and line and nothing left behind.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/core/philox.h"
#include "data/preprocess/preprocess_support.h"
#include "data/shards/shard_set.h"
#include "programs/sample_corpus.h"
#include "support/file_size_limit.h"
#include "support/lfs_pointer.h"

using namespace megatron;
using namespace megatron::test;

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
  job.inputs.paths = {folder.file("k.jsonl")};
  job.inputs.json_key = "body";
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
  CHECK(dataset.shards() == 2);  // the last line begins 50 MB after the others
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
  job.inputs.paths = {folder.file("lines.txt"), folder.file("one.text")};
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
      {"[\"text\"]", {"array instead of an object", "jq -c '.[]'"}},
      {"[", {"not valid JSON", "a JSON array, where each line is to be an object"}},
      {"{", {"not valid JSON", "the object does not end on its line"}},
      {"\xEF\xBB\xBF{\"text\":\"a\"}", {"not valid JSON", "byte order mark (U+FEFF)"}},
      {"{\"text\":null}", {"null instead of a string"}},
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
    tolerant.inputs.skip_bad = true;
    const BlockSummary sum = run(tolerant, 2);
    CHECK(sum.bad == 2);
    CHECK(sum.documents == 300);
    std::filesystem::remove_all(folder.file("out"));
  }
  for (const std::string name : {"u.jsonl", "u.txt"}) {
    write_file(folder.file(name), std::string("\xFE\xFF\0a", 4));
    require_clean_error(folder, job_of(folder, {name}), ErrorKind::data, {folder.file(name), "it is UTF-16", "iconv"});
    write_file(folder.file(name), kLfsPointer);
    require_clean_error(folder, job_of(folder, {name}), ErrorKind::data, {folder.file(name), "a pointer of Git LFS"});
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
  job.inputs.format = "csv";
  require_clean_error(folder, job, ErrorKind::configuration, {"csv", "jsonl"});
  job = job_of(folder, {"a.jsonl"});
  job.shard_bytes = 100;
  require_clean_error(folder, job, ErrorKind::configuration, {"--shard-bytes"});
  job = job_of(folder, {"a.jsonl"});
  job.output = folder.file("a.jsonl/p");
  require_clean_error(folder, job, ErrorKind::filesystem, {"a.jsonl", "folder"});
  job = job_of(folder, {"a.dat"});
  job.inputs.format = "jsonl";
  CHECK(run(job).documents == 1);
}

TEST_CASE("preprocess: Parquet is refused, with a command to convert it", "[preprocess][fault]") {
  const ShardFolder folder;
  std::filesystem::create_directories(folder.file("set"));
  write_file(folder.file("set/a.jsonl"), json_line("a"));
  const std::vector<std::string> told{"it is Parquet", "pyarrow"};
  const auto refused = [&](const std::string& input) {
    for (const char* format : {"", "jsonl", "text"}) {  // whatever the user takes it for, and none is a bad document
      PreprocessJob job = job_of(folder, {input});
      job.inputs.format = format;
      job.inputs.skip_bad = true;
      require_clean_error(folder, job, ErrorKind::data, told);
    }
  };
  for (const char* name : {"b.parquet", "b.jsonl", "b.txt", "b"}) {  // by its ends
    INFO(name);
    write_file(folder.file(name), "PAR1\x15\x04\x15PAR1");
    refused(name);
  }
  write_file(folder.file("set/b.parquet"), "damaged");  // by its name
  refused("set");
  write_file(folder.file("set/b.parquet"), kLfsPointer);
  require_clean_error(folder, job_of(folder, {"set"}), ErrorKind::data, {"b.parquet", "a pointer of Git LFS"});
  write_file(folder.file("set/b.parquet"), "PAR1");
  refused("set");
  std::filesystem::remove(folder.file("set/b.parquet"));
  write_file(folder.file("set/b.txt"), "PAR1 is a gene");
  CHECK(run(job_of(folder, {"set"})).documents == 2);
}

TEST_CASE("preprocess: a named pipe is refused, and not waited for", "[preprocess][fault]") {
  ShardFolder folder;
  REQUIRE(::mkfifo(folder.file("a.jsonl").c_str(), 0600) == 0);
  PreprocessJob job = job_of(folder, {"a.jsonl"});
  ::alarm(20);  // ends the program, should it wait
  require_clean_error(folder, job, ErrorKind::data, {"a.jsonl: not a regular file", "pipes"});
  require_error(ErrorKind::data, {"not a regular file"}, [&] { InputFile file(folder.file("a.jsonl")); });
  ::alarm(0);
}

TEST_CASE("preprocess: a full disk leaves nothing, and an older set as it was", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("small.jsonl"), json_line("old"));
  write_file(folder.file("large.jsonl"), json_line(std::string(3'000'000, 'x')));
  PreprocessJob job = job_of(folder, {"small.jsonl"});
  run(job);
  job.inputs.paths = {folder.file("small.jsonl"), folder.file("large.jsonl")};
  job.shard_bytes = 1 << 20;
  require_error(ErrorKind::filesystem, {"File too large"}, [&] {
    const FileSizeLimit limit(1 << 20);
    run(job, 2);
  });
  CHECK(folder.files() == std::vector<std::string>{"large.jsonl", "p-00000.h5", "small.jsonl"});
  CHECK(texts_of(job.output) == std::vector<std::string>{"old|"});
}

TEST_CASE("preprocess: leftovers of a killed run go with the next run", "[preprocess][fault-68]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("a"));
  std::filesystem::create_directories(folder.file("out"));
  write_file(folder.file("out/p-part-00000.h5.0123abcd.tmp"), "half");
  write_file(folder.file("out/p-part-00009.h5.0123abcd.tmp"), "half");
  write_file(folder.file("out/p.merges.txt.0123abcd.tmp"), "half");
  make_shard(folder.file("out/p"), {{1, 2}}, 1, 2);
  const std::string shard = folder.file("out/p-00001.h5");
  std::filesystem::copy_file(shard, shard + ".replaced");
  std::filesystem::copy_file(shard, shard + ".replaced2");
  write_file(folder.file("out/p-00000.h5.replaced"), "older");
  write_file(folder.file("out/p-00000.h5.replaced2"), "older");
  // A user's own: no shard, or a shard of another place, or another name.
  const std::vector<std::string> others{"p-00000.h5.replaced-by-hand",
                                        "p-00002.h5",
                                        "p-00003.h5",
                                        "p-00003.h5.replaced",
                                        "p-000001.h5",
                                        "p-20240101.h5",
                                        "p-part-00000.h5.tmp",
                                        "p-part-2.h5.0123abcd.tmp",
                                        "p-part-part-00000.h5.0123abcd.tmp",
                                        "p.vocab.json.tmp",
                                        "pq-00001.h5"};
  for (const std::string& name : others) std::filesystem::copy_file(shard, folder.file("out/" + name));
  write_file(folder.file("out/p-20240101.h5"), "measured");
  run(job_of(folder, {"a.jsonl"}));
  std::vector<std::string> expected = others;
  expected.insert(expected.end(), {"a.jsonl", "p-00000.h5"});
  std::sort(expected.begin(), expected.end());
  CHECK(folder.files() == expected);
}

TEST_CASE("preprocess: a whole set is replaced by an equal one only", "[preprocess]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("one") + json_line("two"));
  write_file(folder.file("b.jsonl"), json_line("three"));
  const PreprocessJob job = job_of(folder, {"a.jsonl"}), other = job_of(folder, {"b.jsonl"});
  const auto check = [](const PreprocessJob& again) {
    const auto preprocessor = open_preprocessor(again);
    const bool exists = preprocessor->target_exists();
    preprocessor->check_target({preprocessor->process(0)});
    return exists;
  };
  CHECK_FALSE(check(job));
  run(job);
  CHECK(check(job));
  const std::vector<std::string> before = folder.files();
  require_error(ErrorKind::configuration, {"out/p-00000.h5 already holds another set of 1 shard", "--overwrite"},
                [&] { check(other); });
  CHECK(folder.files() == before);
  ShardSetWriter writer(job.output, small_vocabulary(300), 100);
  writer.add_document(std::vector<std::int32_t>{1, 2});
  require_error(ErrorKind::configuration, {"another tokenizer", "--overwrite"}, [&] { writer.finish(false); });
  CHECK((texts_of(job.output) == std::vector<std::string>{"one|", "two|"}));
  // An incomplete set may be replaced, but not a file that is no shard.
  std::filesystem::remove(folder.file("out/p-00000.h5"));
  make_shard(job.output, {{1, 2}}, 0, 2);
  CHECK_FALSE(check(other));
  write_file(folder.file("out/p-00000.h5"), "a user's own");
  require_error(ErrorKind::configuration, {"p-00000.h5 is there already and is no shard", "--overwrite"},
                [&] { check(other); });
}
