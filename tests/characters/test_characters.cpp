// Canonical composition, by hand. What the tables say of single characters is compared with other
// tokenizers through the ids of tests/tokenizer.
#include <catch2/catch.hpp>
#include <string>

#include "characters/normalization.h"

using namespace megatron;

namespace {

std::string nfc(const std::string& text) {
  std::string buffer;
  return std::string(normalized_nfc(text, buffer));
}

}  // namespace

TEST_CASE("NFC: composes, orders marks, keeps what is not UTF-8", "[tokenizer_kinds]") {
  CHECK(nfc("plain \u00e9") == "plain \u00e9");
  CHECK(nfc("e\u0301") == "\u00e9");
  CHECK(nfc("q\u0307\u0323") == "q\u0323\u0307");  // another order, nothing to compose
  CHECK(nfc("\u1e0a\u0323") == "\u1e0c\u0307");    // taken apart and put together otherwise
  CHECK(nfc("\u212b \u2126") == "\u00c5 \u03a9");  // singletons
  CHECK(nfc("\u1112\u1161\u11ab") == "\ud55c");    // Hangul, all three parts
  CHECK(nfc("\ud558\u11ab") == "\ud55c");          // and a syllable with a trailing part
  CHECK(nfc("\u0958") == "\u0915\u093c");          // excluded from composition
  CHECK(nfc("\u0301e\u0301") == "\u0301\u00e9");   // a mark without a letter
  CHECK(nfc("e\xFF\u0301\xCC") == "e\xFF\u0301\xCC");
  const std::string marks = [] {
    std::string text = "a";
    for (int i = 0; i < 20000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
    return text;
  }();
  CHECK(nfc(nfc(marks)) == nfc(marks));
}
