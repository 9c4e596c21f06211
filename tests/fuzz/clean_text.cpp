// Texts: any bytes are repaired to UTF-8 in bounded work, measured and tidied.
#include "base/text/utf8.h"
#include "data/cleaning/encoding_repair.h"
#include "data/cleaning/language.h"
#include "data/cleaning/quality_rules.h"
#include "data/cleaning/white_space.h"
#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  EncodingRepair repair;
  std::string buffer, tidy;
  const std::string_view repaired = repair.repaired(text, buffer);
  fuzz::require(first_invalid_utf8(repaired) == repaired.size(), "a repaired text that is not UTF-8");
  fuzz::require(repair.work() <= 4000 * (size + 1), "more work than a multiple of the text");
  for (const std::string_view of : {text, repaired}) {
    DocumentMeter meter;
    const DocumentMeasures measures = meter.measure(of);
    first_violation(measures, default_thresholds());
    fuzz::require(measures.word_characters <= measures.characters, "words of more characters than the text has");
    tidied_white_space(of, tidy);
    megatron_white_space(of);
    if (has_language_detection()) guess_language(of);
  }
  return 0;
}
