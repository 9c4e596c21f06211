// Text piece by piece: stop texts that tokens cut in two, and characters of several bytes.
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "inference/generation/text_pieces.h"
#include "support/catch.h"

using namespace megatron;

namespace {

std::vector<std::int32_t> tokens_of(const std::string& text) {
  std::vector<std::int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::vector<std::string> pieces_of(const std::string& text) {
  Utf8Pieces pieces;
  std::vector<std::string> all;
  for (const char c : text) all.push_back(pieces.add(std::string(1, c)));
  all.push_back(pieces.rest());
  return all;
}

}  // namespace

TEST_CASE("text pieces: a text ends in front of a stop text") {
  const auto tokenizer = make_tokenizer({.name = "byte", .vocab_file = {}, .merge_file = {}});
  CHECK(text_of(*tokenizer, {}, {}, tokens_of("one two")) == "one two");
  CHECK(text_of(*tokenizer, {"two"}, {}, tokens_of("one two")) == "one ");
  CHECK(text_of(*tokenizer, {"x", "e t"}, {}, tokens_of("one two")) == "on");
  CHECK(text_of(*tokenizer, {"twox"}, {}, tokens_of("one two")) == "one two");
  TextPieces pieces(*tokenizer, {"ab"}, {});
  CHECK(pieces.add('x') == "x");
  CHECK(pieces.add('a').empty());
  CHECK(pieces.add('c') == "ac");
  CHECK(pieces.add('a').empty());
  CHECK(pieces.rest() == "a");
  CHECK_FALSE(pieces.stopped());
}

TEST_CASE("text pieces: rows that a model has beyond its vocabulary have no text") {
  const auto tokenizer = make_tokenizer({.name = "byte", .vocab_file = {}, .merge_file = {}});
  CHECK(text_of(*tokenizer, {"x"}, {}, std::vector<std::int32_t>{'a', 299, 'b'}) == "ab");
}

TEST_CASE("text pieces: a text without a prompt begins without a space") {
  using Ids = std::vector<std::int32_t>;
  for (const auto& [name, file, word] :
       {std::tuple("unigram", "unigram_t5.json", "return"), std::tuple("bert-cased", "bert_cased.txt", "return"),
        std::tuple("sentencepiece", "spm_llama.model", "return"), std::tuple("gpt2", "llama3.json", " return")}) {
    INFO(name);
    const auto tokenizer = make_tokenizer({name, std::string(MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/") + file, ""});
    Ids ids;
    tokenizer->make_encoder()->encode(name == std::string("gpt2") ? " return" : "return", ids);
    const std::int32_t end = tokenizer->eod_id();
    CHECK(text_of(*tokenizer, {}, {}, ids) == word);
    CHECK(text_of(*tokenizer, {}, Ids{end}, ids) == word);
    if (const std::int32_t begin = tokenizer->special_ids().bos; begin >= 0) {
      CHECK(text_of(*tokenizer, {}, Ids{begin}, ids) == word);
    }
    CHECK(text_of(*tokenizer, {}, ids, ids) == " return");
    Ids later = {end};
    later.insert(later.end(), ids.begin(), ids.end());
    CHECK(text_of(*tokenizer, {}, {}, later) == word);
  }
}

TEST_CASE("text pieces: characters are whole") {
  using Strings = std::vector<std::string>;
  CHECK(pieces_of("aä€😀") == Strings{"a", "", "ä", "", "", "€", "", "", "", "😀", ""});
  Utf8Pieces pieces;
  CHECK(pieces.add("x\xF0\x9F") == "x");
  CHECK(pieces.add("\x98\x80y\xC3") == "😀y");
  CHECK(pieces.rest() == "\xEF\xBF\xBD");
  CHECK(pieces.rest().empty());
}

TEST_CASE("text pieces: bytes that are no UTF-8 are replaced at once") {
  const std::string bad = "\xEF\xBF\xBD";
  const auto joined = [](const std::string& text) {
    std::string all;
    for (const std::string& piece : pieces_of(text)) all += piece;
    return all;
  };
  CHECK(joined("a\x80z") == "a" + bad + "z");
  CHECK(joined("\xC0\xAF") == bad + bad);
  CHECK(joined("\xE2\x82x") == bad + bad + "x");
  CHECK(joined("\xED\xA0\x80") == bad + bad + bad);  // a surrogate
  CHECK(joined("\xF4\x90\x80\x80") == bad + bad + bad + bad);
  CHECK(joined("\xE0\xA0\x80") == "\xE0\xA0\x80");
  CHECK(joined("\xF4\x8F\xBF\xBF") == "\xF4\x8F\xBF\xBF");
  CHECK(joined("\xF0\x90\x80\x80") == "\xF0\x90\x80\x80");
  CHECK(joined("\xED\x9F\xBF") == "\xED\x9F\xBF");
  // Bytes that cannot become a character are not held back.
  Utf8Pieces pieces;
  CHECK(pieces.add("\xED\xA0") == bad + bad);
}
