// Classes of characters and normal forms, by hand. What the tables say of single characters is compared with other
// tokenizers through the ids of tests/data/tokenizer.
#include <string>

#include "data/unicode/character_classes.h"
#include "data/unicode/normalization.h"
#include "support/catch.h"

using namespace megatron;

namespace {

std::string nfc(const std::string& text) {
  std::string buffer;
  return std::string(normalized_nfc(text, buffer));
}

std::string form(NormalForm which, const std::string& text) {
  std::string buffer;
  return std::string(normalized_text(text, which, buffer));
}

}  // namespace

TEST_CASE("Character classes: class, case and words of characters", "[tokenizer_kinds]") {
  using enum CharacterClass;
  struct Row {
    std::uint32_t code_point;
    CharacterClass of;
    LetterCase letter_case;
    bool word;
  };
  const CharacterClasses& classes = CharacterClasses::instance();
  for (const auto& [c, of, letter_case, word] :
       {Row{'A', letter, LetterCase::upper, true}, Row{0x100, letter, LetterCase::upper, true},
        Row{0x101, letter, LetterCase::lower, true}, Row{0x136, letter, LetterCase::upper, true},
        Row{0x137, letter, LetterCase::lower, true}, Row{0x138, letter, LetterCase::lower, true},
        Row{0x4E00, letter, LetterCase::both, true}, Row{0x301, other, LetterCase::both, true},
        Row{'_', other, LetterCase::none, true}, Row{'7', digit, LetterCase::none, true},
        Row{0xBD, digit, LetterCase::none, false}, Row{0x3000, space, LetterCase::none, false},
        Row{'!', other, LetterCase::none, false}, Row{0x10FFFF, other, LetterCase::none, false}}) {
    CAPTURE(c);
    CHECK(classes.of(c) == of);
    CHECK(classes.case_of(c) == letter_case);
    CHECK(classes.is_word(c) == word);
  }
}

TEST_CASE("NFD, NFKC and NFKD: taken apart, by compatibility too", "[tokenizer_kinds]") {
  CHECK(form(NormalForm::d, "\u00e9\u1e69 \ud55c") == "e\u0301s\u0323\u0307 \u1112\u1161\u11ab");
  CHECK(form(NormalForm::d, "\ufb01") == "\ufb01");
  CHECK(form(NormalForm::kc, "\ufb01\u00a0\u2460\u33a5") == "fi 1m3");
  CHECK(form(NormalForm::kc, "\u1e9b\u0323") == "\u1e69");
  CHECK(form(NormalForm::kd, "\u1e9b\u0323") == "s\u0323\u0307");
  CHECK(form(NormalForm::kc, "\uff76\uff9e") == "\u30ac");  // half-width letter and mark
  CHECK(form(NormalForm::kc, "\u00c5\u212b") == "\u00c5\u00c5");
  CHECK(form(NormalForm::kc, "x\xFF\u00b5") == "x\xFF\u03bc");
  CHECK(form(NormalForm::kd, "plain") == "plain");
}

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
