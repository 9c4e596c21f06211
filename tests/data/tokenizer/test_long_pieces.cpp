// Text that is made to be slow, and long pieces against a plain encoder.
#include <time.h>

#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer_kinds/merge_rules.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

BpeVocabulary small_vocabulary() {
  return read_bpe_vocabulary(golden_file(kVocabFile), golden_file(kMergeFile));
}

/// The definition, word by word: the merge of the lowest rank, the leftmost of these, until there is none.
std::vector<std::int32_t> plainly(const MergeRules& rules, std::vector<std::int32_t> symbols) {
  while (true) {
    std::size_t best = 0;
    std::uint32_t lowest = kNoRank;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::uint32_t rank = rules.rank_of(symbols[i], symbols[i + 1]);
      if (rank < lowest) {
        lowest = rank;
        best = i;
      }
    }
    if (lowest == kNoRank) return symbols;
    symbols[best] = rules.result_of(lowest);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

void compare(const BpeVocabulary& vocabulary, std::uint64_t seed) {
  const MergeRules rules(vocabulary);
  std::vector<std::int32_t> byte_ids(256);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    if (token.size() == 1) byte_ids[static_cast<unsigned char>(token[0])] = static_cast<std::int32_t>(id);
  }
  Draw draw(seed);
  for (std::size_t length : {1u, 2u, 95u, 96u, 97u, 150u, 700u}) {
    for (int round = 0; round < 30; ++round) {
      // Few letters make many merges; pieces of tokens make the long ones.
      std::string piece;
      while (piece.size() < length) {
        piece += round % 3 == 0   ? std::string(1, static_cast<char>('a' + draw.below(3)))
                 : round % 3 == 1 ? random_bytes(draw, 1)
                                  : vocabulary.tokens[draw.below(vocabulary.tokens.size())];
      }
      piece.resize(length);
      std::vector<std::int32_t> symbols, ids, ids_of_long;
      for (const char byte : piece) symbols.push_back(byte_ids[static_cast<unsigned char>(byte)]);
      rules.encode(piece, ids);
      encode_long(rules, symbols, ids_of_long);
      const auto expected = plainly(rules, symbols);
      CHECK((ids == expected));
      CHECK((ids_of_long == expected));
    }
  }
}

/// Time of this thread on a processor: the machine's other work is left out.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(Encoder& encoder, const std::string& text) {
  std::vector<std::int32_t> ids;
  const double start = cpu_seconds();
  encoder.encode(text, ids);
  return cpu_seconds() - start;
}

std::string repeated(const std::string& part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

}  // namespace

TEST_CASE("gpt2: short and long pieces as a plain encoder merges them", "[tokenizer]") {
  compare(small_vocabulary(), 3);
}

TEST_CASE("gpt2: a piece that merging would need too much memory for", "[tokenizer]") {
  const MergeRules rules(small_vocabulary());
  const std::string piece(kLongestPiece + 1, 'a');
  std::vector<std::int32_t> ids;
  require_error(ErrorKind::data, {"a word of 67108865 bytes without a space", "longer than 64 MiB"},
                [&] { rules.encode(piece, ids); });
}

TEST_CASE("gpt2: vocabularies in which two merges make one token", "[tokenizer]") {
  // Trained vocabularies have a few of these. Then a later merge can make possible one of a lower rank.
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    vocabulary.byte_ids[static_cast<std::size_t>(byte)] = byte;
  }
  const auto merge = [&](std::int32_t left, std::int32_t right, std::int32_t result) {
    const auto place = static_cast<std::size_t>(result);
    if (place == vocabulary.tokens.size()) vocabulary.tokens.emplace_back();
    vocabulary.tokens[place] =
        vocabulary.tokens[static_cast<std::size_t>(left)] + vocabulary.tokens[static_cast<std::size_t>(right)];
    vocabulary.merges.push_back({left, right, result});
  };
  merge('b', 'c', 256);  // bc
  merge('a', 'b', 257);  // ab
  merge(257, 'c', 258);  // abc
  merge(258, 'a', 259);  // abca
  merge(256, 'a', 260);  // bca
  merge('a', 256, 258);  // abc once more, after a merge that uses it
  merge(258, 258, 261);  // abcabc
  merge('c', 'c', 262);
  merge(259, 260, 263);
  merge('a', 'a', 264);
  merge(264, 264, 265);
  merge(264, 'a', 266);
  compare(vocabulary, 4);
}

TEST_CASE("gpt2: time is linear in the text, whatever it is", "[tokenizer]") {
  const auto tokenizer = small_tokenizer();
  Draw draw(5);
  const std::string noise = random_bytes(draw, 2'000'000), letters = [&] {
    std::string text;
    for (int i = 0; i < 2'000'000; ++i) text.push_back(static_cast<char>('a' + draw.below(26)));
    return text;
  }();
  struct Case {
    const char* what;
    std::string text;
  };
  constexpr std::size_t kBytes = 2'000'000;
  const std::vector<Case> cases = {
      {"one letter", repeated("a", kBytes)},
      {"spaces", repeated(" ", kBytes)},
      {"spaces before a word", repeated(" ", kBytes) + "x"},
      {"newlines", repeated("\n", kBytes)},
      {"apostrophes", repeated("'", kBytes)},
      {"almost contractions", repeated("'r", kBytes)},
      {"alternating", repeated("ab", kBytes)},
      {"space and newline", repeated(" \n", kBytes)},
      {"space and letter", repeated(" a", kBytes)},
      {"long words", repeated(std::string(200, 'q') + " ", kBytes)},
      {"digits", repeated("1234567890", kBytes)},
      {"NUL", repeated(std::string(1, '\0'), kBytes)},
      {"invalid UTF-8", repeated("\xF0\x9F", kBytes)},
      {"wide letters", repeated("\xD0\xB6", kBytes)},
      {"wide spaces", repeated("\xE3\x80\x80", kBytes)},
      {"random letters", letters},
      {"random bytes", noise},
  };
  for (const Case& one : cases) {
    const auto encoder = tokenizer->make_encoder();
    const std::string part = one.text.substr(0, one.text.size() / 8);
    const double small = std::min(seconds(*encoder, part), seconds(*encoder, part)),
                 whole = seconds(*encoder, one.text);
    INFO(one.what << ": " << small << " s for an eighth, " << whole << " s for all");
    CHECK(whole < 8 * 6 * small + 0.1);  // quadratic would be 64 times as long, and seconds
  }
}
