#include "data/cleaning/text_form.h"
#include "support/catch.h"

namespace megatron {

namespace {

std::string words(std::string_view text) {
  std::string buffer;
  return std::string(text_in_form(text, TextForm::words, buffer));
}
std::string spaced(std::string_view text) {
  std::string buffer;
  return std::string(text_in_form(text, TextForm::white_space, buffer));
}

}  // namespace

TEST_CASE("text forms: words are free of case, accents, numbers, punctuation") {
  CHECK(words("  The quick,  BROWN\tfox.\n") == "the quick brown fox");
  CHECK(words("It's 3.14, or 12345!") == "it s 0 0 or 0");
  CHECK(words("abc123def 45_67") == "abc0def 0 0");
  CHECK(words("Éléphant e\u0301le\u0301phant ÀÇ") == "elephant elephant ac");
  CHECK(words("İstanbul ΑΒΓ Жук") == "istanbul αβγ жук");
  CHECK(words("\u0663\u0664 dirham") == "0 dirham");
  CHECK(words("我爱3本书 yes") == "我 爱 0 本 书 yes");
  CHECK(words("a\xFF\xC3z\xE2\x82") == "a z");
  CHECK(words("em\u2014dash \u201Cquoted\u201D\u00A0space") == "em dash quoted space");
  CHECK(words("...\n!") == "");
  CHECK(words("") == "");
}

TEST_CASE("text forms: white space is one space between what stays as it is") {
  CHECK(spaced(" The  quick,\r\n\tBROWN\u00A0\u3000fox 1. ") == "The quick, BROWN fox 1.");
  CHECK(spaced("a\xFF  \xC3") == "a\xFF \xC3");
  CHECK(spaced(" \n ") == "");
}

TEST_CASE("text forms: as it is, a text is not copied") {
  std::string buffer;
  const std::string text = "  A ";
  CHECK(text_in_form(text, TextForm::as_is, buffer).data() == text.data());
}

TEST_CASE("text forms: the hash of a text is XXH3's 128 bits") {
  CHECK((hash_text("") == TextHash{0x6001c324468d497fu, 0x99aa06d3014798d8u}));  // xxhash's own test vector
  CHECK_FALSE((hash_text("a") == hash_text("b")));
}

}  // namespace megatron
