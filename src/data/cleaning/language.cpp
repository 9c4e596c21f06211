#include "data/cleaning/language.h"

#include <algorithm>
#include <cstddef>

#include "base/core/error.h"

#ifdef MEGATRON_CLD2
#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include "base/text/utf8.h"
#endif

namespace megatron {

#ifdef MEGATRON_CLD2

bool has_language_detection() {
  return true;
}

bool is_language(std::string_view code) {
  for (int i = 0; i < CLD2::NUM_LANGUAGES; ++i) {
    if (code == CLD2::LanguageCode(static_cast<CLD2::Language>(i))) return true;
  }
  return false;
}

LanguageGuess guess_language(std::string_view text) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  text = text.substr(0, kMostBytes);
  text = text.substr(0, first_invalid_utf8(text));
  CLD2::Language languages[3];
  int percents[3];
  double scores[3];
  int text_bytes = 0;
  bool reliable = false;
  const CLD2::CLDHints no_hints{nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
  CLD2::ExtDetectLanguageSummary(text.data(), static_cast<int>(text.size()), /*is_plain_text=*/true, &no_hints,
                                 /*flags=*/0, languages, percents, scores, nullptr, &text_bytes, &reliable);
  if (languages[0] == CLD2::UNKNOWN_LANGUAGE) return {};
  return {CLD2::LanguageCode(languages[0]), percents[0] / 100.0, reliable};
}

#else

bool has_language_detection() {
  return false;
}

namespace {

[[noreturn]] void fail_without_detection() {
  fail(ErrorKind::configuration,
       "this program was built without CLD2, which finds the language of a text; install it (Debian: libcld2-dev) and "
       "build again, or do not choose by language");
}

}  // namespace

bool is_language(std::string_view /*code*/) {
  fail_without_detection();
}

LanguageGuess guess_language(std::string_view /*text*/) {
  fail_without_detection();
}

#endif

}  // namespace megatron
