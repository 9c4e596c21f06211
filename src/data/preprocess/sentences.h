// SentenceSplitter: a document's text to its sentences. Owns what ICU needs; not thread-safe. Must not know tokens.
//
//   icu    ICU's rules (UAX 29) for the language, with its abbreviations after which no sentence ends. A newline is a
//          space, since texts are often wrapped; a blank line ends a sentence.
//   lines  each line is one
//   array  each string of a JSON array is one
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

enum class SentenceMode { none, icu, lines, array };

/// ErrorKind::configuration if there is none of this name.
SentenceMode sentence_mode(const std::string& name);

class SentenceSplitter {
 public:
  /// `language`: of icu, as "en". ErrorKind::configuration if ICU has no rules for it, or is not in this build.
  SentenceSplitter(SentenceMode mode, const std::string& language);
  SentenceSplitter(const SentenceSplitter&) = delete;
  SentenceSplitter& operator=(const SentenceSplitter&) = delete;
  ~SentenceSplitter();

  /// The sentences of a text (valid UTF-8), in order; views of it or of this object's memory, until the next call. They
  /// may be spaces only. `ends`: of array.
  const std::vector<std::string_view>& split(std::string_view text, const std::vector<std::size_t>& ends);

 private:
  struct Icu;
  void split_paragraph(std::size_t begin, std::size_t end);
  void split_text(std::string_view text);

  SentenceMode mode_;
  std::unique_ptr<Icu> icu_;
  std::string unwrapped_;
  std::vector<std::string_view> sentences_;
};

}  // namespace megatron
