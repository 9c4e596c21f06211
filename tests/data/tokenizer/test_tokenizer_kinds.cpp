// The kinds of tokenizer.json of published models: ids as Hugging Face's library gives them for random strings
// (scripts/checks/check_tokenizers.py --golden), and single rules of the split patterns, NFC and added tokens.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "data/unicode/normalization.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const char* const kBpeKinds[] = {"llama3", "qwen2", "starcoder",  "gpt_neox",    "flags",
                                 "nfkc",   "o200k", "ranks_qwen", "ranks_tekken"};

std::unique_ptr<Tokenizer> bpe_of_kind(const std::string& kind) {
  const std::string name = kind == "ranks_qwen"     ? "qwen.tiktoken"
                           : kind == "ranks_tekken" ? "tekken.json"
                                                    : kind + ".json";
  return make_tokenizer({"gpt2", kind_file(name), ""});
}

std::string nfc(const std::string& text) {
  std::string buffer;
  return std::string(normalized_nfc(text, buffer));
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("tokenizer kinds: the ids of Hugging Face's library", "[tokenizer_kinds]") {
  for (const std::string kind : kBpeKinds) {
    INFO(kind);
    const json cases = json::parse(std::ifstream(kind_file(kind + ".cases.json")));
    REQUIRE(cases.size() == 100);
    const auto tokenizer = bpe_of_kind(kind);
    const auto as_text = tokenizer->make_encoder();
    const auto as_tokens = tokenizer->make_encoder(SpecialTokens::tokens);
    for (int round = 0; round < 2; ++round) {  // the second time from the encoders' memory
      for (const json& one : cases) {
        const std::string text = one.at("text");
        INFO("text: " << one.at("text").dump(-1, ' ', true));
        const auto ids = encode(*as_text, text);
        CHECK(ids == one.at("ids").get<std::vector<std::int32_t>>());
        CHECK(encode(*as_tokens, text) == one.at("special").get<std::vector<std::int32_t>>());
        if (kind == "llama3" || kind == "starcoder") CHECK((tokenizer->decode(ids) == text));
        if (kind == "qwen2" || kind == "gpt_neox") CHECK((tokenizer->decode(ids) == nfc(text)));
      }
    }
  }
}

TEST_CASE("tokenizer kinds: each has another hash and its own end of documents", "[tokenizer_kinds]") {
  std::set<std::uint64_t> hashes;
  for (const std::string kind : kBpeKinds) hashes.insert(bpe_of_kind(kind)->hash());
  CHECK(hashes.size() == std::size(kBpeKinds));
  const auto end = [](const std::string& kind) {
    const auto tokenizer = bpe_of_kind(kind);
    const json file = json::parse(std::ifstream(kind_file(kind + ".json")));
    for (const json& token : file.at("added_tokens")) {
      if (token.at("id") == tokenizer->eod_id()) return token.at("content").get<std::string>();
    }
    return std::string("none");
  };
  CHECK(end("llama3") == "<|end_of_text|>");
  CHECK(end("qwen2") == "<|endoftext|>");
}

TEST_CASE("split patterns: digits, contractions, newlines and spaces", "[tokenizer_kinds]") {
  CHECK(pieces("x 12345", SplitPattern::cl100k) == Pieces{"x", " ", "123", "45"});
  CHECK(pieces("x 12345", SplitPattern::qwen2) == Pieces{"x", " ", "1", "2", "3", "4", "5"});
  CHECK(pieces("x 123 4", SplitPattern::single_digits) == Pieces{"x", " ", "1", "2", "3", " ", "4"});
  CHECK(pieces("a   1", SplitPattern::single_digits) == Pieces{"a", "   ", "1"});
  CHECK(pieces("a   1", SplitPattern::gpt2) == Pieces{"a", "  ", " 1"});
  CHECK(pieces("it'S WE'LLx'\u017F", SplitPattern::cl100k) == Pieces{"it", "'S", " WE", "'LL", "x", "'\u017F"});
  CHECK(pieces("it'S", SplitPattern::gpt2) == Pieces{"it", "'", "S"});
  CHECK(pieces("(a) .\n\n\n  b", SplitPattern::cl100k) == Pieces{"(a", ")", " .\n\n\n", " ", " b"});
  CHECK(pieces("a \r\n \n  b\tc", SplitPattern::cl100k) == Pieces{"a", " \r\n \n", " ", " b", "\tc"});
  CHECK(pieces("\n\na", SplitPattern::qwen2) == Pieces{"\n\n", "a"});
  CHECK(pieces("  \xFF\xFF z", SplitPattern::qwen2) == Pieces{" ", " \xFF\xFF", " z"});
}

TEST_CASE("split patterns: words by their case", "[tokenizer_kinds]") {
  const auto o200k = [](const std::string& text) { return pieces(text, SplitPattern::o200k); };
  const auto tekken = [](const std::string& text) { return pieces(text, SplitPattern::tekken); };
  CHECK(o200k("camelCase HTTPServer") == Pieces{"camel", "Case", " HTTPServer"});
  CHECK(o200k("we'll WE'VEx 12345") == Pieces{"we'll", " WE'VE", "x", " ", "123", "45"});
  CHECK(tekken("we'll 123") == Pieces{"we", "'ll", " ", "1", "2", "3"});
  CHECK(o200k("a//\n/b ..\r\n/") == Pieces{"a", "//\n/", "b", " ..\r\n/"});
  CHECK(o200k("\u6771\u4EACAB") == Pieces{"\u6771\u4EAC", "AB"});  // letters without case end an upper-case run
  CHECK(o200k("A\u6771B\u4EACa") == Pieces{"A\u6771B\u4EACa"});
  CHECK(o200k("\u0301AB \u0301x") == Pieces{"\u0301", "AB", " \u0301x"});  // a mark is a word, or in front of one
  CHECK(o200k("\tab  cd \n") == Pieces{"\tab", " ", " cd", " \n"});
  CHECK(o200k("x\xFF y") == Pieces{"x", "\xFF", " y"});
}

TEST_CASE("split patterns: every byte is in a piece", "[tokenizer_kinds]") {
  Draw draw(3);
  for (const auto pattern : {SplitPattern::single_digits, SplitPattern::cl100k, SplitPattern::qwen2,
                             SplitPattern::o200k, SplitPattern::tekken}) {
    for (int i = 0; i < 300; ++i) {
      const std::string text = i % 2 == 0 ? random_bytes(draw, 60) : random_utf8(draw, 60);
      std::string together;
      for (const std::string& piece : pieces(text, pattern)) together += piece;
      CHECK((together == text));
    }
  }
}

TEST_CASE("added tokens: the longest first, words and spaces by their flags", "[tokenizer_kinds]") {
  // Bytes on both sides of 0x80 in front of the same end.
  std::vector<std::int32_t> found;
  AddedTokens(
      {{.content = "<|EOT|>", .id = 1}, {.content = "<\uff5cUser\uff5c>", .id = 2}, {.content = "<c>", .id = 3}})
      .split(
          "<\uff5cUser\uff5c>x<|EOT|><c>", PartBorders(SpecialTokens::text),
          [](std::string_view, const PartBorders&) {}, [&](std::int32_t id, std::uint32_t) { found.push_back(id); });
  CHECK(found == std::vector<std::int32_t>{2, 1, 3});
  const AddedTokens tokens({{.content = "<a>", .id = 1},
                            {.content = "<a><b>", .id = 2},
                            {.content = "in", .id = 3, .single_word = true},
                            {.content = "<l>", .id = 4, .lstrip = true},
                            {.content = "<r>", .id = 5, .rstrip = true},
                            {.content = "<s in>", .id = 6, .special = true}});
  const auto split = [&](const std::string& text, bool special) {
    std::string result;
    tokens.split(
        text, PartBorders(special ? SpecialTokens::tokens : SpecialTokens::text),
        [&](std::string_view part, const PartBorders&) { result += "[" + std::string(part) + "]"; },
        [&](std::int32_t id, std::uint32_t) { result += std::to_string(id); });
    return result;
  };
  CHECK(split("<a><b><a>x", false) == "21[x]");
  CHECK(split("in inn in", false) == "3[ inn ]3");
  CHECK(split("x  <l> y", false) == "[x]4[ y]");
  CHECK(split("x <r>\u2003 <l>y", false) == "[x ]54[y]");
  CHECK(split("<s in>", false) == "[<s in>]");  // hides the token inside it
  CHECK(split("<s in>", true) == "6");
  CHECK(split("", true).empty());
}

TEST_CASE("added tokens: as a search at every place finds them", "[tokenizer_kinds]") {
  Draw draw(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<AddedToken> list;
    for (std::int32_t id = 0; id < 8; ++id) {
      std::string content;
      for (std::uint64_t length = 1 + draw.below(5); length > 0; --length) content += draw.below(2) == 0 ? 'a' : 'b';
      list.push_back({.content = content, .id = id});
    }
    std::string text, expected, found;
    for (int i = 0; i < 60; ++i) text += "aabbc"[draw.below(5)];
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* longest = nullptr;
      for (const AddedToken& token : list) {
        const bool longer = longest == nullptr || token.content.size() > longest->content.size();
        if (longer && std::string_view(text).substr(at).starts_with(token.content)) longest = &token;
      }
      expected += longest != nullptr ? std::to_string(longest->id) : text.substr(at, 1);
      at += longest != nullptr ? longest->content.size() : 1;
    }
    AddedTokens(list).split(
        text, PartBorders(SpecialTokens::tokens), [&](std::string_view part, const PartBorders&) { found += part; },
        [&](std::int32_t id, std::uint32_t) { found += std::to_string(id); });
    CHECK(found == expected);
  }
}

TEST_CASE("added tokens: time is linear where tokens begin one another", "[tokenizer_kinds]") {
  std::vector<AddedToken> list = {{.content = "a", .id = 0}};
  for (std::int32_t id = 1; id < 3000; ++id) list.push_back({.content = std::string(id, 'a') + "b", .id = id});
  std::size_t count = 0;  // looking ahead from every place would take hours
  AddedTokens(list).split(
      std::string(2 << 20, 'a'), PartBorders(SpecialTokens::tokens),
      [](std::string_view, const PartBorders&) { FAIL("a part without tokens"); },
      [&](std::int32_t id, std::uint32_t) { count += id == 0 ? 1u : 0u; });
  CHECK(count == 2u << 20);
}

TEST_CASE("a vocabulary without bytes that UTF-8 lacks refuses them", "[tokenizer_kinds][fault]") {
  const auto tokenizer = bpe_of_kind("gpt_neox");
  std::vector<std::int32_t> ids;
  require_error(ErrorKind::data, {"byte 0xf5", "not UTF-8"}, [&] { tokenizer->make_encoder()->encode("a \xF5", ids); });
}
