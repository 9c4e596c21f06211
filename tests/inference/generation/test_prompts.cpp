// Prompts: what each line of a file is, errors by line, and how many tokens a text may have.
#include "inference/generation/prompts.h"
#include "support/byte_tokenizer.h"

#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Tokens = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("prompts: every line is one, as text or as JSON") {
  using Prompts = std::vector<std::string>;
  CHECK(parse_prompts("one\ntwo\n", "f") == Prompts{"one", "two"});
  CHECK(parse_prompts("one\n\ntwo", "f") == Prompts{"one", "", "two"});
  CHECK(parse_prompts("one\r\n\n", "f") == Prompts{"one", ""});
  CHECK(parse_prompts("{\"prompt\": \"a\\nb\", \"text\": \"c\"}\n{\"id\": 1, \"text\": \"d\"}\n[x]", "f") ==
        Prompts{"a\nb", "d", "[x]"});
  CHECK(parse_prompts(R"({"score": NaN, "text": "d", "\ud800": "\udc00", "prompt": "e"})", "f") == Prompts{"e"});
  CHECK(parse_prompts("\n", "f") == Prompts{""});
  CHECK(parse_prompts("\xEF\xBB\xBFone\n", "f") == Prompts{"one"});
  CHECK(parse_prompts(" {\n", "f") == Prompts{" {"});
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  CHECK(parse_prompts("{\"x\": 1, \"x\": " + deep + ", \"text\": \"a\"}", "f") == Prompts{"a"});
}

TEST_CASE("prompts: damage is an error with its line") {
  const auto refused = [](const std::string& contents, const std::vector<std::string>& words) {
    require_error(ErrorKind::data, words, [&] { parse_prompts(contents, "prompts.txt"); });
  };
  refused("", {"prompts.txt is empty"});
  refused("\xEF\xBB\xBF", {"prompts.txt is empty"});
  refused("a\n{\"prompt\": \"b\n", {"prompts.txt:2:", "damaged JSON"});
  refused(std::string("{\"prompt\": \"b\"}\0x\n", 18), {"prompts.txt:1:", "damaged JSON", "0x00"});
  refused("{\"text\": \"a\", \"text\": \"b\"}", {":1:", "\"text\" is there twice"});
  refused("{\"x\": " + std::string(1 << 20, '['), {":1:", "damaged JSON", "found the end"});
  refused("{\"prompt\": 3}\n", {"prompts.txt:1:", "\"prompt\" is no string"});
  refused("{}", {":1:", "neither"});
  refused("{\n\"prompt\": \"b\"}\n", {":1:", "does not end on its line", "jq -c"});
  refused("[\n {\"prompt\": \"b\"}\n]\n", {"prompts.txt: a JSON array", "jq -c"});
  refused(std::string("a\0b\0", 4), {"prompts.txt: it is UTF-16LE"});
  refused("a\nb\nc\xff\xfe\n", {":3:", "not valid UTF-8 (byte 2 of the line)"});
}

TEST_CASE("prompts: a text becomes tokens, behind the end-of-document token") {
  const auto tokenizer = byte_tokenizer();
  const std::int32_t end = tokenizer->eod_id();
  PromptEncoder with(*tokenizer, {});
  CHECK(with.encode("ab", 3, false, "p").tokens == Tokens{end, 'a', 'b'});
  CHECK(with.encode("", 3, false, "p").tokens == Tokens{end});
  PromptEncoder other(*tokenizer, {.begin = 7});
  CHECK(other.encode("ab", 3, false, "p").tokens == Tokens{7, 'a', 'b'});
  PromptEncoder without(*tokenizer, {.begin_token = false});
  CHECK(without.encode("ab", 3, false, "p").tokens == Tokens{'a', 'b'});
  require_error(ErrorKind::data, {"p.txt:4: empty", "--no-begin-token"},
                [&] { without.encode("", 3, false, "p.txt:4"); });
  require_error(ErrorKind::data, {"p.txt:4: not valid UTF-8 (byte 3)"},
                [&] { with.encode("ab\x80", 9, false, "p.txt:4"); });
}

TEST_CASE("prompts: an encoder reads the text, a start token begins the decoder") {
  const auto tokenizer = byte_tokenizer();
  PromptEncoder encoder(*tokenizer, {.for_encoder = true, .encoder_end = 9, .decoder_start = 7});
  const Prompt prompt = encoder.encode("ab", 3, false, "p");
  CHECK(prompt.tokens == Tokens{7});
  CHECK(prompt.encoder_tokens == Tokens{'a', 'b', 9});
  CHECK(encoder.encode("abcd", 3, true, "p").encoder_tokens == Tokens{'c', 'd', 9});
  CHECK(encoder.encode("", 3, false, "p").encoder_tokens == Tokens{9});
  PromptEncoder framed(*tokenizer, {.for_encoder = true, .encoder_begin = 8, .encoder_end = 9, .decoder_start = 7});
  CHECK(framed.encode("a", 3, false, "p").encoder_tokens == Tokens{8, 'a', 9});
  PromptEncoder without(*tokenizer, {.for_encoder = true, .decoder_start = 7});
  CHECK(without.encode("ab", 3, false, "p").encoder_tokens == Tokens{'a', 'b'});
  require_error(ErrorKind::data, {"p: empty, and the model's encoder needs a token"},
                [&] { without.encode("", 3, false, "p"); });
}

TEST_CASE("prompts: one that is too long is refused, or loses its beginning") {
  const auto tokenizer = byte_tokenizer();
  PromptEncoder encoder(*tokenizer, {});
  CHECK(encoder.encode("abcd", 5, true, "p").tokens.front() == tokenizer->eod_id());
  require_error(ErrorKind::data, {"p:7: 5 tokens", "room for 4", "--truncate"},
                [&] { encoder.encode("abcd", 4, false, "p:7"); });
  CHECK(encoder.encode("abcd", 4, true, "p").tokens == Tokens{'a', 'b', 'c', 'd'});
  CHECK(encoder.encode("abcd", 2, true, "p").tokens == Tokens{'c', 'd'});
}
