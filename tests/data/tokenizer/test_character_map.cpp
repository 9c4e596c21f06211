// SentencePiece's table of characters: what it replaces, and tables that would lead a reader astray.
#include "data/tokenizer/character_map.h"
#include "data/tokenizer_kinds/sentence_piece_model.h"
#include "gpt2_support.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::uint32_t kLeaf = 1u << 8, kValue = 1u << 31;

/// A table of blocks of 256 units; the trie's root has its children in block 1.
struct Units {
  std::vector<std::uint32_t> units;
  std::string replacements = std::string("A\0", 2);

  explicit Units(std::size_t blocks) : units(256 * blocks, kValue) { units[0] = 256u << 10; }
  /// The strings of block `from` continue with this byte in block `to`, and end there where `leaf` says so.
  void step(std::size_t from, unsigned char byte, std::size_t to, bool leaf) {
    const std::size_t at = 256 * from ^ byte;
    units[at] = static_cast<std::uint32_t>(at ^ 256 * to) << 10 | (leaf ? kLeaf : 0) | byte;
  }
  std::optional<CharacterMap> read() const {
    const auto bytes = static_cast<std::uint32_t>(units.size() * sizeof units[0]);
    std::string all(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    all.append(reinterpret_cast<const char*>(units.data()), bytes);
    return CharacterMap::read(all + replacements);
  }
};

/// "a", "aa", ... of up to `length` bytes.
Units chain(std::size_t length) {
  Units made(length + 2);
  for (std::size_t i = 1; i <= length; ++i) made.step(i, 'a', i + 1, true);
  return made;
}

}  // namespace

TEST_CASE("CharacterMap: a published table, whole and damaged", "[sentence_piece][fault]") {
  const SentencePieceModel model =
      read_sentence_piece_model({"sentencepiece", MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/spm_t5.model", ""});
  const auto map = CharacterMap::read(model.character_map);
  REQUIRE(map.has_value());
  CHECK(map->shortest("\uFB01x") == "fi");
  CHECK(map->shortest("e\u0301") == "\u00e9");
  CHECK(map->shortest("\u200b") == "");
  CHECK_FALSE(map->shortest("e").has_value());
  CHECK_FALSE(map->shortest("").has_value());
  std::size_t refused = 0;
  Draw draw(11);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = model.character_map;
    bytes[draw.below(bytes.size())] = static_cast<char>(draw.below(256));
    const auto damaged = CharacterMap::read(bytes);
    if (!damaged) ++refused;
    for (int j = 0; damaged && j < 20; ++j) {
      damaged->shortest(random_utf8(draw, 3));
      damaged->longest(random_utf8(draw, 3));
    }
  }
  CHECK(refused > 10);
  for (std::size_t length = 0; length < model.character_map.size(); ++length) {
    CHECK_FALSE(CharacterMap::read(model.character_map.substr(0, length)).has_value());
  }
}

TEST_CASE("CharacterMap: the shortest and the longest of its strings", "[sentence_piece]") {
  const auto map = chain(40).read();
  REQUIRE(map.has_value());
  CHECK(map->shortest("aa") == "A");
  CHECK((map->longest("aaab") == std::pair(std::optional<std::string_view>("A"), std::size_t{3})));
  CHECK((map->longest("b") == std::pair(std::optional<std::string_view>(), std::size_t{0})));
  CHECK(map->longest(std::string(50, 'a')).second == 40);
  // Two ways may lead to the same block.
  Units shared = chain(32);
  shared.units.resize(shared.units.size() + 256, kValue);
  shared.step(1, 'b', 34, true);
  shared.step(34, 'b', 1 + 1, true);
  CHECK(shared.read().has_value());
}

TEST_CASE("CharacterMap: strings of more than 256 bytes are not found", "[sentence_piece]") {
  const auto map = chain(300).read();
  REQUIRE(map.has_value());
  CHECK(map->longest(std::string(300, 'a')).second == 256);
}

TEST_CASE("CharacterMap: strings without an end are refused", "[sentence_piece][fault]") {
  Units cyclic(2);
  cyclic.step(1, 'a', 1, true);
  CHECK_FALSE(cyclic.read().has_value());
  Units silent(3);  // without a replacement on the way
  silent.step(1, 'a', 2, false);
  silent.step(2, 'b', 1, false);
  CHECK_FALSE(silent.read().has_value());
}

TEST_CASE("CharacterMap: a NUL that leads out of the table is refused", "[sentence_piece][fault]") {
  Units outside(2);
  outside.units[256] = 0x1FFFFFu << 10;
  CHECK_FALSE(outside.read().has_value());
}

TEST_CASE("CharacterMap: a replacement has at most 256 bytes", "[sentence_piece][fault]") {
  Units made = chain(1);
  made.replacements = std::string(256, 'A') + '\0';
  CHECK(made.read().has_value());
  made.replacements = std::string(257, 'A') + '\0';
  CHECK_FALSE(made.read().has_value());
}
