// UTF-8: what is well formed, and code points there and back.
#include <string>

#include "base/text/utf8.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("UTF-8: valid and invalid sequences", "[utf8]") {
  for (const std::string text : {"", "abc", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                                 "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CHECK(first_invalid_utf8(text) == text.size());
    CHECK(first_invalid_utf8(text + "\x80") == text.size());
    if (text.size() > 1 && text[0] < 0) CHECK(first_invalid_utf8("a" + text.substr(0, text.size() - 1)) == 1);
  }
  for (const char* text : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                           "\xF5\x80", "\xC2\x41", "\xE1\x80\x41"}) {
    CHECK(first_invalid_utf8(text) == 0);
  }
}

TEST_CASE("UTF-8: an invalid byte is found wherever it stands in a long text", "[utf8]") {
  for (std::size_t i = 0; i < 200; ++i) {
    std::string text(200, 'x');
    text[i] = '\xFF';
    CHECK(first_invalid_utf8(text) == i);
    text.replace(i, 1, "\xE2\x82\xAC");
    CHECK(first_invalid_utf8(text) == text.size());
    CHECK(first_invalid_utf8(text.substr(0, i + 2)) == i);
  }
}

TEST_CASE("UTF-8: every code point there and back", "[utf8]") {
  std::uint32_t wrong = 0;
  for (std::uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    const CodePoint found = first_code_point(text);
    wrong += found.value == code && found.bytes == text.size() ? 0 : 1;
    wrong += first_code_point(text.substr(0, text.size() - 1)).bytes == 0 ? 0 : 1;
  }
  CHECK(wrong == 0);
}
