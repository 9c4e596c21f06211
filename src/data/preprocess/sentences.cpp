#include "data/preprocess/sentences.h"

#include <algorithm>

#include "base/core/error.h"

#ifdef MEGATRON_ICU
#include <unicode/ubrk.h>
#include <unicode/uloc.h>
#include <unicode/utext.h>
#endif

namespace megatron {

#ifdef MEGATRON_ICU

namespace {

void check(UErrorCode status, const char* what) {
  verify(U_SUCCESS(status), ErrorKind::configuration, "ICU, which finds sentences: {}: {}", what, u_errorName(status));
}

}  // namespace

struct SentenceSplitter::Icu {
  std::unique_ptr<UBreakIterator, decltype(&ubrk_close)> breaks{nullptr, ubrk_close};
  UText text = UTEXT_INITIALIZER;

  explicit Icu(const std::string& language) {
    const bool letters = !language.empty() && std::all_of(language.begin(), language.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
    });
    UErrorCode status = U_ZERO_ERROR;
    char iso[ULOC_LANG_CAPACITY] = "";
    if (letters) uloc_getLanguage(language.c_str(), iso, sizeof iso, &status);
    verify(letters && U_SUCCESS(status) && *uloc_getISO3Language(iso) != '\0', ErrorKind::configuration,
           "--language {}: give the code of a language, such as en or pt", language);
    // ss=standard: with the abbreviations that CLDR lists for the language.
    breaks.reset(ubrk_open(UBRK_SENTENCE, (language + "@ss=standard").c_str(), nullptr, 0, &status));
    check(status, "its rules cannot be read");
  }
  ~Icu() { utext_close(&text); }
};

void SentenceSplitter::split_paragraph(std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  const std::string_view paragraph = std::string_view(unwrapped_).substr(begin, end - begin);
  UErrorCode status = U_ZERO_ERROR;
  utext_openUTF8(&icu_->text, paragraph.data(), static_cast<std::int64_t>(paragraph.size()), &status);
  ubrk_setUText(icu_->breaks.get(), &icu_->text, &status);
  check(status, "a text cannot be read");
  std::int32_t from = ubrk_first(icu_->breaks.get());
  for (std::int32_t to = ubrk_next(icu_->breaks.get()); to != UBRK_DONE; to = ubrk_next(icu_->breaks.get())) {
    sentences_.push_back(paragraph.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    from = to;
  }
}

#else

struct SentenceSplitter::Icu {
  explicit Icu(const std::string& /*language*/) {
    fail(ErrorKind::configuration,
         "this program was built without ICU, which --split-sentences needs; install it (Debian: libicu-dev) and build "
         "again, or choose --sentences lines or array");
  }
};

void SentenceSplitter::split_paragraph(std::size_t /*begin*/, std::size_t /*end*/) {
  fail(ErrorKind::internal, "sentences without ICU");
}

#endif

SentenceMode sentence_mode(const std::string& name) {
  if (name == "icu") return SentenceMode::icu;
  if (name == "lines") return SentenceMode::lines;
  verify(name == "array", ErrorKind::configuration, "--sentences {}: choose one of: icu lines array", name);
  return SentenceMode::array;
}

SentenceSplitter::SentenceSplitter(SentenceMode mode, const std::string& language) : mode_(mode) {
  if (mode_ == SentenceMode::icu) icu_ = std::make_unique<Icu>(language);
}

SentenceSplitter::~SentenceSplitter() = default;

const std::vector<std::string_view>& SentenceSplitter::split(std::string_view text,
                                                             const std::vector<std::size_t>& ends) {
  sentences_.clear();
  if (mode_ == SentenceMode::icu) {
    split_text(text);
  } else if (mode_ == SentenceMode::lines) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      sentences_.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  } else {
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      sentences_.push_back(text.substr(begin, end - begin));
      begin = end;
    }
  }
  return sentences_;
}

/// Paragraph by paragraph, which blank lines separate.
void SentenceSplitter::split_text(std::string_view text) {
  unwrapped_.assign(text);
  std::replace(unwrapped_.begin(), unwrapped_.end(), '\r', ' ');
  std::size_t begin = 0;
  for (std::size_t at = unwrapped_.find('\n'); at != std::string::npos; at = unwrapped_.find('\n', at)) {
    const std::size_t next = std::min(unwrapped_.find_first_not_of(" \t", at + 1), unwrapped_.size());
    if (next < unwrapped_.size() && unwrapped_[next] == '\n') {
      split_paragraph(begin, at);
      begin = at = std::min(unwrapped_.find_first_not_of(" \t\n", next), unwrapped_.size());
    } else {
      unwrapped_[at] = ' ';
    }
  }
  split_paragraph(begin, unwrapped_.size());
}

}  // namespace megatron
