// Unigram models of a tokenizer.json: ids as Hugging Face's library gives them for random strings
// (scripts/checks/check_tokenizers.py --golden), words and sentinels, and files that are refused.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer/piece_trie.h"
#include "data/tokenizer/text_normalizer.h"
#include "data/tokenizer/unigram_vocabulary.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const char* const kUnigramKinds[] = {"unigram_t5", "unigram_nfc", "unigram_xlm", "unigram_bytes", "unigram_whole"};

std::unique_ptr<Tokenizer> unigram_of_kind(const std::string& kind) {
  return make_tokenizer({"unigram", kind_file(kind + ".json"), ""});
}

using Ids = std::vector<std::int32_t>;
using ScoredPieces = std::vector<std::pair<std::string, double>>;

const ScoredPieces kSmallPieces = {{kMark, -3}, {"a", -4}, {kMark + "ab", -5}, {"b", -4}};

struct SmallUnigram {
  TemporaryFolder folder;
  std::unique_ptr<Tokenizer> tokenizer;

  explicit SmallUnigram(const std::string& text = write_unigram_json(kSmallPieces, 2), std::int64_t extra_ids = 0) {
    write_file(folder.file(kTokenizerFile), text);
    tokenizer = make_tokenizer({"unigram", folder.file(kTokenizerFile), "", extra_ids});
  }
  Ids ids(const std::string& text, SpecialTokens special = SpecialTokens::text) const {
    return encode(*tokenizer->make_encoder(special), text);
  }
};

}  // namespace

TEST_CASE("Unigram: the ids of Hugging Face's library", "[unigram]") {
  for (const std::string kind : kUnigramKinds) {
    INFO(kind);
    const json cases = json::parse(std::ifstream(kind_file(kind + ".cases.json")));
    REQUIRE(cases.size() == 100);
    const auto tokenizer = unigram_of_kind(kind);
    const auto as_text = tokenizer->make_encoder(), as_tokens = tokenizer->make_encoder(SpecialTokens::tokens);
    for (int round = 0; round < 2; ++round) {  // the second time from the encoders' memory
      for (const json& one : cases) {
        INFO("text: " << one.at("text").dump(-1, ' ', true));
        if (!one.at("ids").is_null()) CHECK(encode(*as_text, one.at("text")) == one.at("ids").get<Ids>());
        CHECK(encode(*as_tokens, one.at("text")) == one.at("special").get<Ids>());
      }
    }
  }
}

TEST_CASE("Unigram: pieces that begin words, special tokens and texts", "[unigram]") {
  const SmallUnigram small;
  SpecialIds expected{.pad = 0, .bos = 0, .eos = 1, .unk = 2, .first_sentinel = 8, .sentinels = 2, .sentinel_step = -1};
  CHECK((small.tokenizer->special_ids() == expected));
  CHECK(small.tokenizer->continues() == std::vector<std::uint8_t>{0, 0, 1, 0, 1, 0, 1, 0, 0});
  CHECK(small.ids("ab\n a xyb") == Ids{5, 3, 4, 3, 2, 6});
  CHECK(small.ids("</s>") == Ids{3, 2});
  CHECK(small.ids("ab<extra_id_1>a</s>", SpecialTokens::tokens) == Ids{5, 7, 3, 4, 1});
  CHECK(small.tokenizer->decode(Ids{5, 3, 4, 6, 7, 5, 1}) == "ab ab<extra_id_1> ab");
  CHECK(small.tokenizer->decode_next(5) == " ab");
  require_error(ErrorKind::data, {"token id 9", "0 .. 8"}, [&] { small.tokenizer->decode(Ids{9}); });
}

TEST_CASE("Unigram: sentinels that are added are in the file that is kept", "[unigram]") {
  const SmallUnigram small(write_unigram_json(kSmallPieces, 0), 3);
  CHECK(small.tokenizer->vocab_size() == 10);
  CHECK(small.tokenizer->special_ids().first_sentinel == 9);
  const TemporaryFolder folder;
  write_file(folder.file(kTokenizerFile), std::string(small.tokenizer->files().at(0).contents));
  const KeptTokenizer kept = find_kept_tokenizer("unigram", small.tokenizer->hash(), folder.path() + "/");
  REQUIRE(kept.tokenizer != nullptr);
  CHECK((kept.tokenizer->special_ids() == small.tokenizer->special_ids()));
  CHECK(find_kept_tokenizer("unigram", 1, folder.path() + "/").others.find("another vocabulary") != std::string::npos);
  CHECK(hugging_face_tokenizer(folder.path() + "/").tokenizer->hash() == small.tokenizer->hash());
  require_error(ErrorKind::data, {"has 3 sentinels", "--extra-ids asks for 4"}, [&] {
    make_tokenizer({"unigram", folder.file(kTokenizerFile), "", 4});
  });
}

TEST_CASE("Unigram: any bytes give ids of the vocabulary", "[unigram]") {
  Draw draw(5);
  for (const std::string kind : kUnigramKinds) {
    const auto tokenizer = unigram_of_kind(kind);
    const auto encoder = tokenizer->make_encoder();
    for (int i = 0; i < 300; ++i) {
      const std::string text = i % 2 == 0 ? random_bytes(draw, 80) : random_utf8(draw, 80);
      for (const std::int32_t id : encode(*encoder, text)) REQUIRE((id >= 0 && id < tokenizer->vocab_size()));
    }
  }
}

TEST_CASE("Unigram: a word of a million characters", "[unigram]") {
  std::string word;
  for (int i = 0; i < 500'000; ++i) word += "ab";
  CHECK(SmallUnigram().ids(word).size() == 999'999);
}

/// The line on which the value at `place` begins in dump(1).
std::size_t line_of(json file, const char* place) {
  file[json::json_pointer(place)] = "here";
  const std::string text = file.dump(1);
  return 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + text.find("\"here\""), '\n'));
}

TEST_CASE("Unigram: what is wrong in a file, or not supported, by line", "[unigram][fault]") {
  const json good = json::parse(write_unigram_json(kSmallPieces, 2));
  struct Case {
    const char* place;
    json value;
    const char* named;  // the value whose line the message says; "": of the file as a whole
    std::vector<std::string> parts;
  };
  const char *const whole = "", *const map = "precompiled_charsmap";
  const char *const steps = "/pre_tokenizer", *const unknown = "/model/unk_id", *const piece = "/model/vocab/3";
  const Case cases[] = {
      {"/model/type", "BPE", "/model/type", {"model.type = \"BPE\""}},
      {unknown, nullptr, whole, {"no unknown piece"}},
      {unknown, 9, whole, {"no unknown piece"}},
      {unknown, -1, unknown, {"not a tokenizer.json"}},
      {piece, json::array(), piece, {"not a tokenizer.json"}},
      {"/model/vocab/3/1", nullptr, piece, {"piece 3 has the score null"}},
      {"/model/vocab/3/1", "x", piece, {"piece 3 has the score"}},
      {"/model/vocab/3/1", 1e300, piece, {"piece 3 has the score"}},
      {"/model/vocab/3/0", "", piece, {"token 3 has 0 bytes"}},
      {"/model/vocab/3/0", "a", "/model/vocab/4", {"\"a\" is there twice, with ids 3 and 4"}},
      {"/model/vocab", json::array(), whole, {"no model with a vocab"}},
      {"/model/dropout", 0.1, "/model/dropout", {"model.dropout"}},
      {"/added_tokens/1/special", false, nullptr, {"no special added token that ends documents"}},
      {"/added_tokens/1/id", 7, "/added_tokens/1", {"\"</s>\" has id 7: expected 1"}},
      {"/added_tokens/1/content", "<new>", "/added_tokens/1", {"\"<new>\" has id 1: expected 9"}},
      {"/added_tokens/0/other", 1, "/added_tokens/0", {"\"other\" of an added token"}},
      {"/normalizer/type", "Nmt", "/normalizer", {"a normalizer of type Nmt"}},
      {"/normalizer", {{"type", "Precompiled"}, {map, "AAAA"}}, "/normalizer", {map, "damaged"}},
      {"/normalizer", {{"type", "Precompiled"}, {map, "*"}}, "/normalizer", {map, "damaged"}},
      {"/normalizer", {{"type", "Replace"}, {"pattern", {{"String", "``"}}}, {"content", "x"}}, "/normalizer", {"``"}},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", std::string(257, 'x')}},
       "/normalizer",
       {"a Replace by 257 bytes"}},
      {steps, nullptr, steps, {"a pre_tokenizer of 0 steps"}},
      {"/pre_tokenizer/pretokenizers/0/type", "Whitespace", steps, {"a pre_tokenizer of 2 steps"}},
      {"/pre_tokenizer/pretokenizers/1/replacement", "_", steps, {"another replacement"}},
      {"/pre_tokenizer/pretokenizers/1/prepend_scheme", "never", steps, {"WhitespaceSplit", "never"}},
      {"/pre_tokenizer/pretokenizers/1/prepend_scheme", "maybe", steps, {"prepend_scheme"}},
      {"/decoder/type", "WordPiece", "/decoder", {"a decoder of type WordPiece"}},
      {"/surprise", 1, "/surprise", {"\"surprise\""}},
  };
  for (const Case& c : cases) {
    INFO(c.place << " " << c.parts.back());
    json spoilt = good;
    spoilt[json::json_pointer(c.place)] = c.value;
    const std::string text = spoilt.dump(1);
    const std::size_t lines = 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    const std::size_t line = c.named == nullptr ? lines : c.named == whole ? 1 : line_of(spoilt, c.named);
    std::vector<std::string> parts = c.parts;
    parts.push_back(fmt::format("tokenizer.json:{}: ", line));
    require_error(ErrorKind::data, parts, [&] { SmallUnigram refused(text); });
  }
  for (const char* part : {"model", "pre_tokenizer"}) {
    json spoilt = good;
    spoilt.erase(part);
    require_error(ErrorKind::data, {"tokenizer.json:1: no "}, [&] { SmallUnigram refused(spoilt.dump(1)); });
  }
  const std::string text = good.dump();
  for (std::size_t length = 0; length < text.size(); length += 37) {
    require_error(ErrorKind::data, {"tokenizer.json:1: not a tokenizer.json"},
                  [&] { SmallUnigram refused(text.substr(0, length)); });
  }
  require_error(ErrorKind::configuration, {"--vocab-file", "--type unigram"}, [] {
    make_tokenizer({"unigram", "", ""});
  });
}

TEST_CASE("Unigram: a key that is there twice, and a number that no double holds", "[unigram][fault]") {
  const std::string good = write_unigram_json(kSmallPieces, 0);
  require_error(ErrorKind::data, {"tokenizer.json:2: ", "\"added_tokens\" is there twice"},
                [&] { SmallUnigram refused("{\"added_tokens\": [],\n" + good.substr(1)); });
  const std::string large = "{\n\"truncation\": 1e999," + good.substr(good.find("\"padding\""));
  CHECK(SmallUnigram(large).tokenizer->vocab_size() == 7);
  CHECK(SmallUnigram(large, 5).tokenizer->vocab_size() == 12);  // only the list of added tokens is changed
}

TEST_CASE("Unigram: a score of -0 is 0, in the file that is kept too", "[unigram]") {
  std::string file = write_unigram_json(kSmallPieces, 0);
  const std::uint64_t hash = SmallUnigram(file).tokenizer->hash();
  const std::string zero = R"(["<unk>",0.0])";
  file.replace(file.find(zero), zero.size(), R"(["<unk>",-0])");
  CHECK(SmallUnigram(file).tokenizer->hash() == hash);
  const SmallUnigram more(file, 2);
  CHECK(SmallUnigram(more.tokenizer->tokenizer_json()).tokenizer->hash() == more.tokenizer->hash());
}

TEST_CASE("Unigram: a first sentinel with id 0 is the only one", "[unigram]") {
  json file = json::parse(write_unigram_json(kSmallPieces, 0));
  file["model"]["vocab"][0][0] = file["added_tokens"][0]["content"] = "<extra_id_0>";
  const SmallUnigram small(file.dump());
  CHECK(small.tokenizer->special_ids().sentinels == 1);
  CHECK(small.tokenizer->continues() == std::vector<std::uint8_t>{0, 0, 1, 0, 1, 0, 1});
}

TEST_CASE("Unigram: time is linear in the number of sentinels", "[unigram]") {
  const std::string file = write_unigram_json(kSmallPieces, 200'000);
  const std::clock_t start = std::clock();
  CHECK(SmallUnigram(file).tokenizer->special_ids().sentinels == 200'000);
  CHECK(std::clock() - start < 10 * CLOCKS_PER_SEC);  // quadratic would be a minute
}

TEST_CASE("Unigram: spaces that are stripped leave the text no front", "[unigram]") {
  json file = json::parse(write_unigram_json(kSmallPieces, 2));
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", "first"}, {"split", true}};
  const SmallUnigram strips(file.dump());
  CHECK(strips.ids("ab") == Ids{5});
  CHECK(strips.ids("  ab") == Ids{4, 6});  // as Hugging Face's library
  CHECK(strips.ids("ab") == Ids{5});
  // A space that NFKC makes of a character with an accent by itself: the accent is in front.
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, file["normalizer"]}}};
  const SmallUnigram composes(file.dump());
  CHECK(composes.ids("\u00a8ab").front() == 3);
  CHECK(composes.ids("  ab") == Ids{4, 6});
}

TEST_CASE("TextNormalizer: NFC of plain text between two other steps", "[unigram]") {
  std::vector<NormalizerStep> steps(3);
  steps[0].kind = steps[2].kind = NormalizerStep::Kind::replace_spaces;
  steps[0].content = steps[2].content = "   ";
  TextNormalizer normalizer(steps);
  CHECK(normalizer.normalized("hello  world") == "hello   world");
  CHECK(normalizer.normalized("a  e\u0301") == "a   \u00e9");
  CHECK(normalizer.normalized("  ") == "   ");
}

TEST_CASE("grapheme clusters: what a table of characters looks up as a whole", "[unigram]") {
  CHECK(cluster_bytes("ab") == 1);
  CHECK(cluster_bytes("\r\n") == 2);
  CHECK(cluster_bytes("\n\u0301") == 1);        // no mark joins a newline
  CHECK(cluster_bytes("e\u0301\u0301x") == 5);  // two marks
  CHECK(cluster_bytes("e\u0301\u0301\u0301x") >= 6);
  CHECK(cluster_bytes("\u0600a") == 3);       // a sign in front of a number
  CHECK(cluster_bytes("\u1100\u1161") == 6);  // Hangul
  CHECK(cluster_bytes("\u0e33") == 3);
}

TEST_CASE("PieceTrie: every piece that a text begins with", "[unigram]") {
  const PieceTrie trie({{"ab", 0}, {"a", 1}, {"abcd", 2}, {"b", 3}, {"\xff", 4}});
  const auto prefixes = [&](std::string_view text) {
    std::string found;
    trie.for_each_prefix(text, [&](std::size_t length, std::int32_t id) {
      found += std::to_string(length) + ":" + std::to_string(id) + " ";
    });
    return found;
  };
  CHECK(prefixes("abcde") == "1:1 2:0 4:2 ");
  CHECK(prefixes("abc") == "1:1 2:0 ");
  CHECK(prefixes("\xff") == "1:4 ");
  CHECK(prefixes("x").empty());
  CHECK(prefixes("").empty());
  PieceTrie().for_each_prefix("a", [](std::size_t, std::int32_t) { FAIL("a piece of none"); });
}
