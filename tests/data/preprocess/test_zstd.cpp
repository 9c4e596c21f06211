// Files that zstd has compressed: the same text as before, in any parts, and damage that is named.
#include "data/preprocess/zstd_text.h"

#include <zstd.h>

#include "data/preprocess/preprocess_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string zstd_of(const std::string& text) {
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, 0);
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  bytes.resize(ZSTD_compress2(context.get(), bytes.data(), bytes.size(), text.data(), text.size()));
  return bytes;
}

std::string some_text(std::size_t bytes) {
  std::string text;
  std::uint32_t state = 5;
  while (text.size() < bytes) {
    state = state * 1664525 + 1013904223;
    text.push_back(static_cast<char>('a' + (state >> 16) % 26));
  }
  return text;
}

}  // namespace

TEST_CASE("zstd: any part of the text, forward, back and over") {
  const ShardFolder folder;
  const std::string text = some_text(11 << 20);
  write_file(folder.file("t.zst"), zstd_of(text.substr(0, 1 << 20)) + zstd_of("") + zstd_of(text.substr(1 << 20)));
  CHECK(is_zstd(folder.file("t.zst")));
  ZstdText zstd(folder.file("t.zst"));
  REQUIRE(zstd.bytes() == text.size());
  std::string buffer;
  for (const std::size_t at : {std::size_t{0}, std::size_t{100}, text.size() - 1000, std::size_t{7}, text.size() / 2}) {
    zstd.read(at, 1000, buffer);
    CHECK(buffer == text.substr(at, 1000));
  }
  zstd.read(3, text.size() - 3, buffer);
  CHECK((buffer == text.substr(3)));
  ZstdText known(folder.file("t.zst"), text.size());
  known.read(text.size(), 0, buffer);
  CHECK(buffer.empty());
}

TEST_CASE("zstd: the same shards as from the file before it was compressed") {
  const ShardFolder folder;
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += json_line("story " + std::to_string(i) + " " + std::string(i % 90, 'x'));
  write_file(folder.file("a.jsonl"), lines);
  write_file(folder.file("b.jsonl.zst"), zstd_of(lines));
  const PreprocessJob plain = job_of(folder, {"a.jsonl"});
  PreprocessJob compressed = job_of(folder, {"b.jsonl.zst"});
  compressed.output = folder.file("out/q");
  run(plain, 2);
  run(compressed, 3);
  CHECK(TokenDataset(plain.output).set_hash() == TokenDataset(compressed.output).set_hash());
}

TEST_CASE("zstd: damage is named, and nothing is written", "[fault]") {
  const ShardFolder folder;
  const std::string whole = zstd_of(some_text(3 << 20));
  const auto refused = [&](const std::string& bytes, const std::vector<std::string>& parts) {
    write_file(folder.file("a.txt.zst"), bytes);
    require_clean_error(folder, job_of(folder, {"a.txt.zst"}), ErrorKind::data, parts);
  };
  for (const std::size_t cut : {std::size_t{5}, whole.size() / 2, whole.size() - 1}) {
    refused(whole.substr(0, cut), {"a.txt.zst: damaged", "unexpected end"});
  }
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 4);
  refused(flipped, {"a.txt.zst: damaged after byte"});
  refused(whole + "plain text\n", {"no zstd frame", "byte " + std::to_string(whole.size())});
  refused(whole + std::string(512, '\0'), {"no zstd frame"});
  refused(whole + whole.substr(0, 2), {"unexpected end"});
}

TEST_CASE("zstd: windows that would take much memory are refused", "[fault]") {
  const ShardFolder folder;
  // A frame's beginning by hand: without checksum and length, with a window of 2^(10 + 20) bytes.
  std::string frame("\x28\xB5\x2F\xFD\0\xA0", 6);
  frame += std::string("\x01\0\0", 3);  // an empty block, the last one
  write_file(folder.file("a.txt.zst"), frame);
  require_clean_error(folder, job_of(folder, {"a.txt.zst"}), ErrorKind::data, {"a.txt.zst: damaged", "--long"});
}
