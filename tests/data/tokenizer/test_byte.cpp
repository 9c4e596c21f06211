// The byte tokenizer, and the choice of a tokenizer by name.
#include <array>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("tokenizer: bytes", "[tokenizer]") {
  const auto tokenizer = make_tokenizer({});
  CHECK(tokenizer->name() == "byte");
  CHECK(tokenizer->vocab_size() == 257);
  CHECK(tokenizer->eod_id() == 256);
  CHECK(tokenizer->hash() == make_tokenizer({})->hash());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  std::vector<std::int32_t> ids{7};
  tokenizer->make_encoder()->encode(all, ids);
  REQUIRE(ids.size() == 257);
  CHECK(ids[0] == 7);  // appended, not replaced
  for (int byte = 0; byte < 256; ++byte) CHECK(ids[static_cast<std::size_t>(byte) + 1] == byte);
  ids.erase(ids.begin());
  ids.insert(ids.begin() + 3, 256);
  CHECK(tokenizer->decode(ids) == all);
  for (const std::int32_t wrong : {257, -1}) {
    require_error(ErrorKind::data, {std::to_string(wrong)}, [&] { tokenizer->decode(std::vector{wrong}); });
  }
}

TEST_CASE("tokenizer: the byte tokenizer's end of a document can be written out", "[tokenizer]") {
  const auto tokenizer = make_tokenizer({});
  const std::string text = "a" + tokenizer->eod_text() + "b";
  std::vector<std::int32_t> ids, as_text;
  tokenizer->make_encoder(SpecialTokens::tokens)->encode(text, ids);
  CHECK(ids == std::vector<std::int32_t>{'a', 256, 'b'});
  tokenizer->make_encoder()->encode(text, as_text);
  CHECK(as_text == std::vector<std::int32_t>(text.begin(), text.end()));
  // In parts that ask for it alone.
  std::vector<std::uint32_t> parts;
  const std::string end = tokenizer->eod_text();
  const std::string first = "a" + end;
  tokenizer->make_encoder()->encode_parts(
      std::array{TextPart{first}, TextPart{end, SpecialTokens::tokens}, TextPart{"b"}}, ids, parts);
  REQUIRE(ids.size() == end.size() + 3);
  CHECK(ids[end.size() + 1] == 256);
  CHECK(parts[end.size()] == 0);
  CHECK(parts[end.size() + 1] == 1);
  CHECK(parts.back() == 2);
}

TEST_CASE("tokenizer: an unknown name lists the known ones and files are gpt2's", "[tokenizer]") {
  require_error(ErrorKind::configuration, {"\"gpt9\"", "byte gpt2"}, [] { make_tokenizer({"gpt9", "", ""}); });
  require_error(ErrorKind::configuration, {"--merge-file"}, [] { make_tokenizer({"gpt2", "vocab.json", ""}); });
  require_error(ErrorKind::configuration, {"--vocab-file"}, [] { make_tokenizer({"byte", "vocab.json", ""}); });
}
