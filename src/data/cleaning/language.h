// Language of a text, by CLD2 (Compact Language Detector 2). Used by the step `text` of megatron_clean. Only
// language.cpp includes CLD2's headers. Without CLD2 at build time, asking for a language is an error that names the
// package.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

struct LanguageGuess {
  std::string code = "un";  ///< as CLD2 has it: "en", "de", "zh", "zh-Hant"; "un" if it is unknown
  double share = 0;         ///< in the text, from 0 to 1, in hundredths
  bool reliable = false;
};

/// Whether the program was built with CLD2.
bool has_language_detection();

/// Whether guess_language() can have this code as its answer. ErrorKind::configuration without CLD2.
bool is_language(std::string_view code);

/// The language of most of a text. Only the first 16 MiB and what is valid UTF-8 before the first damage count. Threads
/// may ask at the same time. ErrorKind::configuration without CLD2.
LanguageGuess guess_language(std::string_view text);

}  // namespace megatron
