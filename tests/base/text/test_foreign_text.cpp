// Files and lines in the place of others are told by their first bytes.
#include "base/text/foreign_text.h"

#include <algorithm>
#include <string>

#include "support/catch.h"

#include "support/lfs_pointer.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("foreign text: pointers of Git LFS, and what only looks like one") {
  CHECK(lfs_advice(kLfsPointer).find("git lfs pull") != std::string::npos);
  CHECK(lfs_advice("version 2\n").empty());
  CHECK(lfs_advice("").empty());
}

TEST_CASE("foreign text: the command for Parquet is safe to type") {
  const auto ends = [](const std::string& path, const std::string& end) {
    INFO(path);
    const std::string advice = parquet_advice(path);
    CHECK(advice.find("it is Parquet") == 0);
    CHECK(advice.substr(advice.size() - std::min(advice.size(), end.size())) == end);
  };
  ends("data/a.parquet", "\" data/a.parquet > a.parquet.jsonl");
  ends("a.jsonl", "\" a.jsonl > a.jsonl.jsonl");  // not over itself
  ends("it's $(here)", "\" 'it'\\''s $(here)' > 'it'\\''s $(here).jsonl'");
  const std::string advice = parquet_advice("a");
  const std::size_t begin = advice.find('"') + 1, end = advice.find('"', begin);
  REQUIRE(end != std::string::npos);
  for (const char c : {'$', '`', '\\', '!'}) CHECK(advice.substr(begin, end - begin).find(c) == std::string::npos);
}

TEST_CASE("foreign text: UTF-16 and UTF-32, with a mark or without") {
  const auto advice = [](const char* bytes, std::size_t count) { return encoding_advice({bytes, count}); };
  CHECK(advice("\xFF\xFE{\0", 4).find("it is UTF-16, ") == 0);
  CHECK(advice("\xFE\xFF\0{", 4).find("it is UTF-16, ") == 0);
  CHECK(advice("\xFF\xFE\0\0", 4).find("it is UTF-32, ") == 0);
  CHECK(advice("{\0\"\0", 4).find("it is UTF-16LE, ") == 0);
  CHECK(advice("\0{\0\"", 4).find("it is UTF-16BE, ") == 0);
  for (const char* good : {"", "a", "abcd", "\xEF\xBB\xBF{"}) CHECK(encoding_advice(good).empty());
}

TEST_CASE("foreign text: lines that are no JSON object of their own") {
  CHECK(json_line_advice(" [").find("a JSON array") == 0);
  CHECK(json_line_advice("{ \"a\": ").find("the object does not end on its line") == 0);
  CHECK(json_line_advice("\xEF\xBB\xBF{}").find("the line begins with a byte order mark") == 0);
  for (const char* other : {"", "  ", "hello", "{\"a\": x}", "\"text\""}) CHECK(json_line_advice(other).empty());
}
