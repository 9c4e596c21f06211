// Bzip2 files: one text of several streams, in any parts; damage is told with its place.
#include <bzlib.h>

#include "data/preprocess/bzip2_text.h"
#include "data/preprocess/text_corpus.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string bzip2_of(const std::string& text) {
  std::string out(text.size() + text.size() / 100 + 600, '\0');
  auto bytes = static_cast<unsigned>(out.size());
  REQUIRE(::BZ2_bzBuffToBuffCompress(out.data(), &bytes, const_cast<char*>(text.data()),
                                     static_cast<unsigned>(text.size()), 1, 0, 0) == BZ_OK);
  out.resize(bytes);
  return out;
}

std::string written(const TemporaryFolder& folder, const std::string& contents) {
  std::string path = folder.file("text.bz2");
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

std::string all_of(const std::string& path) {
  Bzip2Text file(path);
  std::string text;
  file.read(0, file.bytes(), text);
  return text;
}

std::string random_text(std::size_t bytes) {
  std::string text;
  for (std::uint32_t state = 5; text.size() < bytes;) {
    state = state * 1664525 + 1013904223;
    text.push_back(static_cast<char>('a' + (state >> 16) % 26));
  }
  return text;
}

}  // namespace

TEST_CASE("bzip2: streams of a file are one text") {
  const TemporaryFolder folder;
  const std::string text = random_text(3'500'000);
  std::string streams;
  for (std::size_t at = 0; at < text.size(); at += 500'000) streams += bzip2_of(text.substr(at, 500'000));
  const std::string path = written(folder, streams + bzip2_of(""));
  CHECK(is_bzip2(path));
  CHECK((all_of(path) == text));
  Bzip2Text file(path), known(path, text.size());
  std::string part;
  for (const std::size_t at : {std::size_t{0}, text.size() - 1000, std::size_t{7}, text.size() / 2}) {
    file.read(at, 1000, part);
    CHECK(part == text.substr(at, 1000));
    known.read(at, 1000, part);
    CHECK(part == text.substr(at, 1000));
  }
  CHECK(all_of(written(folder, bzip2_of(""))).empty());
  CHECK(all_of(written(folder, "")).empty());
  CHECK((all_of(written(folder, bzip2_of(std::string(5'000'000, 'z')))) == std::string(5'000'000, 'z')));
}

TEST_CASE("bzip2: the same documents as from the file before it was compressed") {
  const TemporaryFolder folder;
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  std::ofstream(folder.file("a.jsonl.bz2"), std::ios::binary) << bzip2_of(lines);
  TextCorpus corpus(TextInputs{.paths = {folder.file("a.jsonl.bz2")}, .format = ""});
  REQUIRE(corpus.bytes() == lines.size());
  std::vector<std::string> texts;
  corpus.visit({0, 0, lines.size()}, [&](std::string_view text) { texts.emplace_back(text); });
  CHECK(texts == std::vector<std::string>{"one", "two"});
}

TEST_CASE("bzip2: damage is refused with its place") {
  const TemporaryFolder folder;
  const std::string good = bzip2_of(random_text(100'000));
  const auto require_refused = [&](const std::string& contents, const std::vector<std::string>& parts) {
    const std::string path = written(folder, contents);
    require_error(ErrorKind::data, parts, [&] { all_of(path); });
  };
  require_refused(good.substr(0, good.size() / 2), {"text.bz2", "unexpected end of file"});
  require_refused(good.substr(0, 3), {"unexpected end of file"});
  require_refused(good + good.substr(0, 20), {"unexpected end of file"});
  require_refused(good + "more", {"no bzip2 stream begins at byte " + std::to_string(good.size())});
  require_refused("plain text", {"no bzip2 stream begins at byte 0"});
  std::string damaged = good;
  damaged[damaged.size() / 2] ^= 0x10;
  require_refused(damaged, {"damaged after byte", "bzip2 stream at byte 0"});
  CHECK(!is_bzip2(written(folder, "BZ")));
  CHECK(!is_bzip2(written(folder, "BZh9 is how bzip2 begins")));
  CHECK(!is_bzip2(folder.file("none")));
  require_error(ErrorKind::data, {"none"}, [&] { Bzip2Text text(folder.file("none")); });
}
