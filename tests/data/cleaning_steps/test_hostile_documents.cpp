// Inputs that are damaged or meant to harm: an error with file and line, and nothing is written.
#include <zstd.h>

#include "base/system/memory_usage.h"
#include "data/cleaning_steps/clean_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string zstd_of(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

void require_refused(const ShardFolder& folder, const StepJob& job, const std::vector<std::string>& parts) {
  require_clean_error(folder, ErrorKind::data, parts, [&] { play(job, 3); });
  CHECK_FALSE(std::filesystem::exists(folder.file("out")));
}

}  // namespace

TEST_CASE("clean: bad documents are errors with file and line", "[clean][fault-141]") {
  const ShardFolder folder;
  const std::pair<std::string, const char*> cases[] = {
      {"{\"text\": \"a\xFF\"}", "invalid UTF-8"},
      {std::string("{\"text\": \"a\0b\"}", 14), "control character U+0000"},
      {std::string("\0\0\0", 3), "byte 0x00"},
      {"{\"text\": \"a\"", "not valid JSON"},
      {"{\"text\": \"a\"} {}", "not valid JSON"},
      {"[\"a\"]", "not valid JSON"},
      {"{\"text\": 5}", "\"text\" is not a string"},
      {"{\"tex\": \"a\"}", "no key \"text\""},
      {"{\"text\": \"a\", \"te\\u0078t\": \"b\"}", "there twice"},
      {"{\"text\": \"\\ud800\"}", "surrogate"},
      {"{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + ", \"text\": \"a\"}", "more than 512 levels"},
      {"{\"text\": \"" + std::string(200000, 'a') + "\"}", "longer than 100000 bytes"},
  };
  for (const auto& [line, part] : cases) {
    INFO(part);
    std::string text;
    for (int i = 0; i < 700; ++i) text += json_line("document " + std::to_string(i));
    write_file(folder.file("a.jsonl"), text + line + "\n" + json_line("after") + "bad too\n");
    StepJob job = job_of(folder, "text", {"a.jsonl"}, {{"gopher", "false"}});
    job.longest = 100000;
    if (std::string(part).starts_with("more than")) job.longest = 1 << 20;
    require_refused(folder, job, {"a.jsonl:701: ", part});
    job.skip_bad = true;
    CHECK(play(job, 2).provenance["documents"]["bad"] == 2);
    CHECK(documents(folder).ends_with(json_line("after")));
    std::filesystem::remove_all(folder.file("out"));
  }
}

TEST_CASE("clean: the first bad document is told, on any ranks", "[clean][fault-141]") {
  const ShardFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += i % 900 == 899 ? "bad\n" : json_line("document " + std::to_string(i));
  write_file(folder.file("a.jsonl"), text);
  for (const int ranks : {1, 2, 3, 8}) {
    require_clean_error(folder, ErrorKind::data, {"a.jsonl:900: "}, [&] {
      play(job_of(folder, "sample", {"a.jsonl"}, {{"documents", "5"}}), ranks);
    });
  }
}

TEST_CASE("clean: damaged zstd files, and those of others", "[clean][fault-141]") {
  const ShardFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += json_line("document " + std::to_string(i * i));
  const std::string whole = zstd_of(text);
  const StepJob job = job_of(folder, "merge", {"a.jsonl.zst"});
  write_file(folder.file("a.jsonl.zst"), whole.substr(0, whole.size() / 2));
  require_refused(folder, job, {"a.jsonl.zst: damaged", "unexpected end"});
  write_file(folder.file("a.jsonl.zst"), whole + "more");
  require_refused(folder, job, {"a.jsonl.zst: damaged", "byte " + std::to_string(whole.size())});
  write_file(folder.file("a.jsonl.zst"), "BZh91AY&SY");
  require_refused(folder, job, {"a.jsonl.zst: damaged after byte 0", "unexpected end"});
  write_file(folder.file("a.jsonl.zst"), std::string("\xFD"
                                                     "7zXZ\0",
                                                     6));
  require_refused(folder, job, {"a.jsonl.zst: compressed by xz"});
  write_file(folder.file("a.jsonl.zst"), whole + zstd_of("") + whole);
  CHECK(play(job, 2).provenance["documents"]["read"] == 40000);
  CHECK((documents(folder) == text + text));
}

TEST_CASE("clean: a line of 1 GB in a small file takes little memory", "[clean][fault-142]") {
  const ShardFolder folder;
  std::string bomb;
  const std::string part = zstd_of(std::string(64 << 20, 'a'));
  for (int i = 0; i < 16; ++i) bomb += part;
  write_file(folder.file("a.jsonl.zst"), zstd_of(json_line("one") + "{\"text\": \"") + bomb);
  StepJob job = job_of(folder, "text", {"a.jsonl.zst"}, {{"gopher", "false"}});
  job.longest = 1 << 20;
  job.block_bytes = 8 << 20;
  const std::size_t before = peak_resident_bytes();
  require_clean_error(folder, ErrorKind::data, {"a.jsonl.zst:2: longer than 1048576 bytes"}, [&] { play(job); });
  CHECK(peak_resident_bytes() < before + (64 << 20));
}
