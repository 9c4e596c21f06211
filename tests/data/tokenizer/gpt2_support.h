// Shared by the tests of tokenizers: the small vocabulary of tests/golden/bpe, the files of other kinds, and text of
// all kinds.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/core/philox.h"
#include "base/text/utf8.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/catch.h"

namespace megatron::test {

inline std::string golden_file(const std::string& name) {
  return std::string(MEGATRON_GOLDEN_FOLDER) + "/bpe/" + name;
}

inline std::string kind_file(const std::string& name) {
  return MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + name;
}

/// The character that pieces have in place of a space.
inline const std::string kMark = "\u2581";

inline std::unique_ptr<Tokenizer> small_tokenizer() {
  return make_tokenizer({"gpt2", golden_file(kVocabFile), golden_file(kMergeFile)});
}

inline std::vector<std::int32_t> encode(Encoder& encoder, const std::string& text) {
  std::vector<std::int32_t> ids;
  encoder.encode(text, ids);
  return ids;
}

inline std::vector<std::string> pieces(const std::string& text, SplitPattern pattern = SplitPattern::gpt2) {
  const PieceScanner scanner(pattern);
  std::vector<std::string> result;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const stop = scanner.piece_end(at, end);
    REQUIRE((stop > at && stop <= end));
    result.emplace_back(at, stop);
    at = stop;
  }
  return result;
}

/// Random numbers below a limit; the same ones every time.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t limit) { return mix64(state_++ * 0x9E3779B97F4A7C15u) % limit; }

 private:
  std::uint64_t state_;
};

inline std::string random_bytes(Draw& draw, std::size_t count) {
  std::string text;
  while (text.size() < count) text.push_back(static_cast<char>(draw.below(256)));
  return text;
}

/// Code points of one to four bytes, spaces and apostrophes among them.
inline std::string random_utf8(Draw& draw, std::size_t code_points) {
  constexpr std::uint32_t kLimits[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
  std::string text;
  for (std::size_t i = 0; i < code_points; ++i) {
    const auto code = static_cast<std::uint32_t>(draw.below(kLimits[draw.below(5)]));
    if (draw.below(4) == 0) {
      text += " '\n\t sl"[draw.below(7)];
    } else if (code < 0xD800 || code > 0xDFFF) {
      append_utf8(text, code);
    }
  }
  return text;
}

}  // namespace megatron::test
