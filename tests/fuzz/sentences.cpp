// Sentence splitting: no character but spaces is lost, none is added, whatever the text. The first byte chooses how.
#include "data/preprocess/sentences.h"

#include "base/text/utf8.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

std::string without_spaces(std::string_view text) {
  std::string dense;
  for (const char c : text) {
    if (std::string_view(" \t\r\n\v\f").find(c) == std::string_view::npos) dense += c;
  }
  return dense;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  text = text.substr(0, first_invalid_utf8(text));
  fuzz::allow({ErrorKind::configuration}, [&] {  // a build without ICU
    static SentenceSplitter lines(SentenceMode::lines, "en");
    const auto icu = []() -> SentenceSplitter& {
      static SentenceSplitter made(SentenceMode::icu, "en");
      return made;
    };
    std::string joined;
    for (const std::string_view sentence : (data[0] % 2 == 0 ? icu() : lines).split(text, {})) joined += sentence;
    fuzz::require(without_spaces(joined) == without_spaces(text), "sentences that are not the text");
  });
  return 0;
}
