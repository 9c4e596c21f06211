// Compressed inputs: the same documents, offsets and shards as their contents, wherever they are cut.
#include "data/preprocess/gzip_text.h"

#include <zlib.h>

#include <functional>

#include "data/preprocess/preprocess_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// As `parts` members of a gzip file.
void write_gzip(const std::string& path, const std::string& text, std::size_t parts = 1) {
  std::filesystem::remove(path);
  const std::size_t each = text.size() / parts + 1;
  for (std::size_t begin = 0; begin < text.size(); begin += each) {
    gzFile file = ::gzopen(path.c_str(), "ab");
    const std::string part = text.substr(begin, each);
    REQUIRE(::gzwrite(file, part.data(), static_cast<unsigned>(part.size())) == static_cast<int>(part.size()));
    REQUIRE(::gzclose(file) == Z_OK);
  }
}

/// Text without order in it, so that it does not compress to nothing.
std::string random_lines(std::size_t bytes) {
  std::string text;
  std::uint32_t state = 5;
  while (text.size() < bytes) {
    state = state * 1664525 + 1013904223;
    text.push_back(state >> 24 < 6 ? '\n' : static_cast<char>('a' + (state >> 16) % 26));
  }
  return text;
}

std::uint64_t set_hash(const PreprocessJob& job) {
  run(job, 2);
  return TokenDataset(job.output).set_hash();
}

}  // namespace

TEST_CASE("gzip: any part of the text, forward, back and over") {
  const ShardFolder folder;
  const std::string text = random_lines(14 << 20);
  write_gzip(folder.file("t.gz"), text, 3);
  CHECK(is_gzip(folder.file("t.gz")));
  GzipText gzip(folder.file("t.gz"));
  REQUIRE(gzip.bytes() == text.size());
  std::string buffer;
  const std::size_t last = text.size();
  for (const std::size_t at : {std::size_t{0}, std::size_t{100}, std::size_t{50}, last - 1000, last - (3 << 20),
                               std::size_t{7}, last / 2, last - 1000}) {
    gzip.read(at, 1000, buffer);
    CHECK(buffer == text.substr(at, 1000));
  }
  gzip.read(3, last - 3, buffer);
  CHECK((buffer == text.substr(3)));
  gzip.read(last, 0, buffer);
  CHECK(buffer.empty());
}

TEST_CASE("gzip: the same shards as from the file before it was compressed") {
  const ShardFolder folder;
  std::string lines, text = random_lines(600 << 10);
  for (int i = 0; i < 400; ++i) lines += json_line("story " + std::to_string(i) + " " + std::string(i % 90, 'x'));
  for (std::size_t at = 1000; at < text.size(); at += 5000) text[at] = text[at + 1] = '\n';
  write_file(folder.file("a.jsonl"), lines);
  write_file(folder.file("b.txt"), text);
  write_gzip(folder.file("a.jsonl.gz"), lines, 4);
  write_gzip(folder.file("b.txt.gz"), text);
  PreprocessJob plain = job_of(folder, {"a.jsonl", "b.txt"}), packed = job_of(folder, {"a.jsonl.gz", "b.txt.gz"});
  packed.output = folder.file("out/q");
  CHECK(set_hash(plain) == set_hash(packed));
  CHECK(TokenDataset(packed.output).shards() > 10);
  CHECK(texts_of(plain.output) == texts_of(packed.output));
}

TEST_CASE("gzip: bad documents are named by their line in the text") {
  const ShardFolder folder;
  write_gzip(folder.file("a.jsonl.gz"), json_line("one") + "\n{\"text\": 5}\n");
  require_clean_error(folder, job_of(folder, {"a.jsonl.gz"}), ErrorKind::data, {"a.jsonl.gz:3"});
}

TEST_CASE("gzip: damaged files are refused before anything is written", "[fault]") {
  const ShardFolder folder;
  write_gzip(folder.file("a.txt.gz"), random_lines(3 << 20));
  const std::string whole = contents_of(folder.file("a.txt.gz"));
  write_file(folder.file("a.txt.gz"), whole.substr(0, whole.size() / 2));
  require_clean_error(folder, job_of(folder, {"a.txt.gz"}), ErrorKind::data, {"a.txt.gz: damaged", "unexpected end"});
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 4);
  write_file(folder.file("a.txt.gz"), flipped);
  require_clean_error(folder, job_of(folder, {"a.txt.gz"}), ErrorKind::data, {"a.txt.gz: damaged"});
}

TEST_CASE("gzip: what follows a member and is no member is an error", "[fault-59]") {
  const ShardFolder folder;
  const std::string text = random_lines(10000);
  write_gzip(folder.file("a.txt.gz"), text);
  const std::string whole = contents_of(folder.file("a.txt.gz"));
  std::string bad_header = whole;
  bad_header[2] = 7;  // a compression that gzip does not have
  for (const std::string& rest :
       {bad_header, std::string(512, '\0'), std::string("plain text\n"), whole.substr(0, 1)}) {
    write_file(folder.file("a.txt.gz"), whole + rest);
    const std::string place = rest.size() == 1 ? "unexpected end" : "byte " + std::to_string(whole.size());
    require_clean_error(folder, job_of(folder, {"a.txt.gz"}), ErrorKind::data, {"a.txt.gz: damaged", place});
  }
  write_file(folder.file("a.txt.gz"), whole + whole);
  CHECK(GzipText(folder.file("a.txt.gz")).bytes() == 2 * text.size());
}

TEST_CASE("gzip: inputs of other compressions are refused by name") {
  const ShardFolder folder;
  const std::pair<const char*, std::string> others[] = {{"xz", std::string("\xFD"
                                                                           "7zXZ\0",
                                                                           6)},
                                                        {"lz4", "\x04\x22\x4D\x18"},
                                                        {"zip", "PK\x03\x04"}};
  for (const auto& [name, begin] : others) {
    for (const char* file : {"a.jsonl", "a.jsonl.packed"}) {
      write_file(folder.file(file), begin + "and so on");
      PreprocessJob job = job_of(folder, {file});
      job.inputs.skip_bad = true;
      require_clean_error(folder, job, ErrorKind::data,
                          {std::string(file) + ": compressed by " + name, "unpack it", "gzip or zstd"});
    }
  }
  write_file(folder.file("a.txt"), "BZh9 is how bzip2 begins");
  CHECK(run(job_of(folder, {"a.txt"})).documents == 1);
}

TEST_CASE("an input that is another one when it is opened again", "[fault]") {
  const ShardFolder folder;
  const bool packed = GENERATE(false, true);
  const std::string path = folder.file(packed ? "b.txt.gz" : "b.txt"), text(20000, 'a');
  const auto write = [&](const std::string& contents) {
    if (packed) {
      write_gzip(path, contents);
    } else {
      write_file(path, contents);
    }
  };
  write(text);
  write_file(folder.file("a.txt"), "a");
  PreprocessJob job = job_of(folder, {"a.txt", packed ? "b.txt.gz" : "b.txt"});
  job.shard_bytes = 1 << 20;
  const auto require_noticed = [&](const std::function<void()>& change) {
    const auto preprocessor = open_preprocessor(job);
    change();
    require_error(ErrorKind::data, {path + ": has changed while it was in use"}, [&] { preprocessor->process(0); });
  };
  if (packed) require_noticed([&] { write(random_lines(20000)); });  // a text of the same length
  const auto time = std::filesystem::last_write_time(path);
  require_noticed([&] { std::filesystem::last_write_time(path, time + std::chrono::seconds(1)); });
  CHECK(run(job).documents == 2);
}

TEST_CASE("a folder as input stands for all files in it and below, by name") {
  const ShardFolder folder;
  std::filesystem::create_directories(folder.file("wiki/AB"));
  std::filesystem::create_directories(folder.file("wiki/AA"));
  std::filesystem::create_directories(folder.file("wiki/.hidden"));
  write_file(folder.file("wiki/AB/wiki_00"), json_line("three"));
  write_file(folder.file("wiki/AA/wiki_01"), json_line("two"));
  write_file(folder.file("wiki/AA/wiki_00"), json_line("one"));
  write_file(folder.file("wiki/AA/.wiki_00.swp"), "x");
  write_file(folder.file("wiki/.hidden/a"), "x");
  PreprocessJob job = job_of(folder, {"wiki"});
  require_clean_error(folder, job, ErrorKind::configuration, {"wiki/AA/wiki_00", "--format"});
  job.inputs.format = "jsonl";
  run(job, 2);
  CHECK(texts_of(job.output) == std::vector<std::string>{"one|", "two|", "three|"});
  std::filesystem::create_directories(folder.file("empty"));
  require_clean_error(folder, job_of(folder, {"empty"}), ErrorKind::data, {"empty: no files"});
}

TEST_CASE("more inputs than a process may have open") {
  const ShardFolder folder;
  std::filesystem::create_directories(folder.file("many"));
  for (int i = 0; i < 1500; ++i)
    write_file(folder.file("many/" + std::to_string(10000 + i) + ".jsonl"), json_line("x"));
  PreprocessJob job = job_of(folder, {"many"});
  job.shard_bytes = 1 << 20;
  CHECK(run(job).documents == 1500);
}
