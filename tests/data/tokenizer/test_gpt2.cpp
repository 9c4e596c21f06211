// The GPT-2 tokenizer against what an independent encoder made of the same strings (scripts/golden/make_bpe_golden.py),
// and against itself: every byte comes back.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// All stored strings by a tokenizer's own ids. Each twice: the second time from the encoder's memory.
void check_cases(const Tokenizer& tokenizer, const char* vocabulary) {
  const nlohmann::json cases = nlohmann::json::parse(std::ifstream(golden_file("cases.json")));
  REQUIRE(cases.size() > 300);
  const auto encoder = tokenizer.make_encoder();
  for (int round = 0; round < 2; ++round) {
    for (const nlohmann::json& one : cases) {
      const std::string text = one.at("text");
      const auto ids = encode(*encoder, text);
      INFO("text: " << one.at("text").dump(-1, ' ', true));
      CHECK(ids == one.at(vocabulary).get<std::vector<std::int32_t>>());
      CHECK((tokenizer.decode(ids) == text));
    }
  }
}

}  // namespace

TEST_CASE("gpt2: the ids of an independent encoder, small vocabulary", "[tokenizer]") {
  check_cases(*small_tokenizer(), "small");
}

TEST_CASE("gpt2: the ids of an independent encoder, GPT-2's own vocabulary", "[tokenizer]") {
  const char* const folder = std::getenv("MEGATRON_GPT2_VOCAB");
  const std::filesystem::path path(folder != nullptr ? folder : MEGATRON_SOURCE "/data/gpt2");
  if (folder == nullptr && !std::filesystem::exists(path)) {
    std::cout << "SKIPPED: GPT-2's own vocabulary; get it with scripts/download_vocab.sh, or set MEGATRON_GPT2_VOCAB "
                 "to a folder with its vocab.json and merges.txt\n";
    return;
  }
  const auto tokenizer = make_tokenizer({"gpt2", (path / kVocabFile).string(), (path / kMergeFile).string()});
  CHECK(tokenizer->vocab_size() == 50257);
  CHECK(tokenizer->eod_id() == 50256);
  check_cases(*tokenizer, "gpt2");
}

TEST_CASE("gpt2: pieces", "[tokenizer]") {
  using Pieces = std::vector<std::string>;
  CHECK(pieces("Hello world") == Pieces{"Hello", " world"});
  CHECK(pieces("it's we'll 'Sx") == Pieces{"it", "'s", " we", "'ll", " '", "Sx"});
  CHECK(pieces("  a \n b\n") == Pieces{" ", " a", " \n", " b", "\n"});
  CHECK(pieces("a\n\nb  ") == Pieces{"a", "\n", "\n", "b", "  "});
  CHECK(pieces("x12,\xC2\xA0\xC2\xA0y") == Pieces{"x", "12", ",", "\xC2\xA0", "\xC2\xA0", "y"});
  CHECK(pieces("\xFF\xC3z\xC3") == Pieces{"\xFF\xC3", "z", "\xC3"});  // not UTF-8: neither letters nor spaces
  CHECK(pieces("abcdefghijklmnop\xC3\xA9q r") == Pieces{"abcdefghijklmnop\xC3\xA9q", " r"});
}

TEST_CASE("gpt2: decoding gives back every byte, valid UTF-8 or not", "[tokenizer]") {
  const auto tokenizer = small_tokenizer();
  const auto encoder = tokenizer->make_encoder();
  Draw draw(1);
  for (std::size_t i = 0; i < 3000; ++i) {
    std::string text = i % 2 == 0 ? random_utf8(draw, i % 97) : random_bytes(draw, i % 301);
    const auto ids = encode(*encoder, text);
    CHECK((tokenizer->decode(ids) == text));
    CHECK(std::find(ids.begin(), ids.end(), tokenizer->eod_id()) == ids.end());
    std::string by_one;  // as generation prints it: parts of a character come one after the other
    for (const std::int32_t id : ids) by_one += tokenizer->decode(std::span(&id, 1));
    CHECK((by_one == text));
  }
}

TEST_CASE("gpt2: ids do not depend on what the encoder has seen before", "[tokenizer]") {
  const auto tokenizer = small_tokenizer();
  const auto used = tokenizer->make_encoder();
  Draw draw(2);
  for (int i = 0; i < 60; ++i) {
    const std::string text = random_utf8(draw, 4000);
    CHECK((encode(*used, text) == encode(*tokenizer->make_encoder(), text)));
  }
}

TEST_CASE("gpt2: encoding appends and ids outside the vocabulary are refused", "[tokenizer]") {
  const auto tokenizer = small_tokenizer();
  CHECK(tokenizer->name() == "gpt2");
  CHECK(tokenizer->vocab_size() == 1200);
  CHECK(tokenizer->eod_id() == 1199);
  std::vector<std::int32_t> ids{7, 8};
  tokenizer->make_encoder()->encode("<|endoftext|>", ids);
  REQUIRE(ids.size() > 3);  // ordinary text
  CHECK((ids[0] == 7 && ids[1] == 8));
  ids = {1199, ids[2], 1199};
  CHECK(tokenizer->decode(ids) == tokenizer->decode(std::span(ids).subspan(1, 1)));
  ids.clear();
  tokenizer->make_encoder(SpecialTokens::tokens)->encode("a<|endoftext|>", ids);
  CHECK((ids.size() == 2 && ids.back() == tokenizer->eod_id()));
  for (const std::int32_t wrong : {1200, -1}) {
    require_error(ErrorKind::data, {std::to_string(wrong)}, [&] { tokenizer->decode(std::vector{wrong}); });
  }
}

TEST_CASE("gpt2: merges.txt is found next to vocab.json", "[tokenizer]") {
  CHECK(make_tokenizer({"gpt2", golden_file(kVocabFile), ""})->hash() == small_tokenizer()->hash());
  const TemporaryFolder folder;
  const std::string vocab = folder.file("books.vocab.json"), merges = folder.file("books.merges.txt");
  std::filesystem::copy_file(golden_file(kVocabFile), vocab);
  require_error(ErrorKind::configuration, {vocab, merges, "--merge-file"}, [&] {
    make_tokenizer({"gpt2", vocab, ""});
  });
  std::filesystem::copy_file(golden_file(kMergeFile), merges);
  CHECK(make_tokenizer({"gpt2", vocab, ""})->hash() == small_tokenizer()->hash());
}
