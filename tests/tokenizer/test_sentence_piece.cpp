// SentencePiece: ids as its own library gives them for random strings
// (scripts/check_tokenizers.py --golden), T5's sentinels, words, and models that are refused.
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "gpt2_support.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"
#include "tokenizer/sentence_piece_library.h"
#include "tokenizer/sentence_piece_model.h"
#include "tokenizer/sentence_piece_tokenizer.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const char* const kKinds[] = {"spm_t5", "spm_bytes", "spm_llama", "spm_bpe"};

std::string kind_file(const std::string& name) {
  return MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + name;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A field of a message: number, then bytes, at most 127 of them.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string integer(int number, std::uint64_t value) {
  std::string written(1, static_cast<char>(number << 3));
  if (number > 15) written = {static_cast<char>((number << 3 & 0x7F) | 0x80), static_cast<char>(number >> 4)};
  for (; value >= 0x80; value >>= 7) written += static_cast<char>(value | 0x80);
  return written + static_cast<char>(value);
}
std::string piece(const std::string& text, PieceType type = PieceType::normal, float score = 0) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + "\x15" + bits + integer(3, static_cast<std::uint64_t>(type)));
}

const std::string kMark = "\u2581";
const std::string kFirst =
    piece("<pad>", PieceType::control) + piece("</s>", PieceType::control) + piece("<unk>", PieceType::unknown);
const std::string kSmall = kFirst + piece(kMark, PieceType::normal, -3) + piece("a", PieceType::normal, -4) +
                           piece(kMark + "ab", PieceType::normal, -5) + piece("b", PieceType::normal, -4);

/// A model of these bytes.
struct Small {
  TemporaryFolder folder;
  std::unique_ptr<Tokenizer> tokenizer;

  explicit Small(const std::string& bytes = kSmall, std::int64_t extra_ids = 0) {
    write_file(folder.file("small.model"), bytes);
    tokenizer = make_tokenizer({"sentencepiece", folder.file("small.model"), "", extra_ids});
  }
  std::vector<std::int32_t> ids(const std::string& text, SpecialTokens special = SpecialTokens::text) const {
    return encode(*tokenizer->make_encoder(special), text);
  }
};

using Ids = std::vector<std::int32_t>;

/// Nothing to test where the library is not there; tests say so.
bool library_is_missing() {
  if (SentencePieceLibrary::is_there()) return false;
  WARN("skipped: this build has no libsentencepiece");
  return true;
}

}  // namespace

TEST_CASE("SentencePiece: a build without the library says so", "[sentence_piece][fault]") {
  if (SentencePieceLibrary::is_there()) return;
  require_error(ErrorKind::configuration, {"spm_t5.model", "without libsentencepiece", "libsentencepiece-dev"}, [] {
    make_tokenizer({"sentencepiece", kind_file("spm_t5.model"), ""});
  });
}

TEST_CASE("SentencePiece: the ids that its library gives", "[sentence_piece]") {
  if (library_is_missing()) return;
  for (const std::string kind : kKinds) {
    INFO(kind);
    const json cases = json::parse(std::ifstream(kind_file(kind + ".cases.json")));
    REQUIRE(cases.size() == 100);
    const auto tokenizer = make_tokenizer({"sentencepiece", kind_file(kind + ".model"), "", 20});
    const auto as_text = tokenizer->make_encoder(), as_tokens = tokenizer->make_encoder(SpecialTokens::tokens);
    for (const json& one : cases) {
      INFO("text: " << one.at("text").dump(-1, ' ', true));
      CHECK(encode(*as_text, one.at("text")) == one.at("ids").get<Ids>());
      CHECK(encode(*as_tokens, one.at("text")) == one.at("special").get<Ids>());
    }
  }
}

TEST_CASE("SentencePiece: T5's special ids, and sentinels that count down", "[sentence_piece]") {
  if (library_is_missing()) return;
  const auto tokenizer = make_tokenizer({"sentencepiece", kind_file("spm_t5.model"), "", 20});
  const std::int64_t size = make_tokenizer({"sentencepiece", kind_file("spm_t5.model"), ""})->vocab_size();
  CHECK(tokenizer->vocab_size() == size + 20);
  SpecialIds expected{.pad = 0, .bos = 0, .eos = 1, .unk = 2, .sentinels = 20, .sentinel_step = -1};
  expected.first_sentinel = static_cast<std::int32_t>(size) + 19;
  CHECK((tokenizer->special_ids() == expected));
  CHECK(tokenizer->eod_id() == 1);
  CHECK(tokenizer->decode(Ids{expected.first_sentinel, static_cast<std::int32_t>(size)}) ==
        "<extra_id_0><extra_id_19>");
  // The file that is kept has them.
  const TemporaryFolder folder;
  const auto files = tokenizer->files();
  REQUIRE(files.size() == 1);
  write_file(folder.file(files[0].name), std::string(files[0].contents));
  const KeptTokenizer kept = find_kept_tokenizer("sentencepiece", tokenizer->hash(), folder.path() + "/");
  REQUIRE(kept.tokenizer != nullptr);
  CHECK((kept.tokenizer->special_ids() == expected));
  CHECK(find_kept_tokenizer("sentencepiece", 1, folder.path() + "/").tokenizer == nullptr);
  CHECK(make_tokenizer({"sentencepiece", folder.file(kSentencePieceFile), "", 20})->hash() == tokenizer->hash());
  require_error(ErrorKind::data, {"tokenizer.model", "has 20 sentinels", "--extra-ids asks for 21"}, [&] {
    make_tokenizer({"sentencepiece", folder.file(kSentencePieceFile), "", 21});
  });
}

TEST_CASE("SentencePiece: pieces that begin words, and special tokens", "[sentence_piece]") {
  if (library_is_missing()) return;
  const Small small(kSmall, 2);
  CHECK(small.tokenizer->continues() == std::vector<std::uint8_t>{0, 0, 1, 0, 1, 0, 1, 0, 0});
  CHECK(small.ids("ab a  xb") == Ids{5, 3, 4, 3, 2, 6});
  CHECK(small.ids("</s>") == Ids{3, 2});
  CHECK(small.ids("ab<extra_id_1>a</s>", SpecialTokens::tokens) == Ids{5, 7, 3, 4, 1});
  CHECK(small.tokenizer->decode(Ids{5, 3, 4, 6, 7, 5, 1}) == "ab ab<extra_id_1> ab");
  CHECK(small.tokenizer->decode_next(5) == " ab");
  CHECK(small.tokenizer->eod_text() == "</s>");
  require_error(ErrorKind::data, {"token id 9", "0 .. 8"}, [&] { small.tokenizer->decode(Ids{9}); });
  const auto llama = make_tokenizer({"sentencepiece", kind_file("spm_llama.model"), ""});
  for (const std::string text : {"the first  one, 東京\n\u00e9 \U0001f600", " and\t\x01."}) {
    CHECK(llama->decode(encode(*llama->make_encoder(), text)) == text);
  }
}

TEST_CASE("SentencePiece: the tokenizer of a model's folder", "[sentence_piece]") {
  if (library_is_missing()) return;
  const TemporaryFolder folder;
  write_file(folder.file("spiece.model"), contents(kind_file("spm_t5.model")));
  const auto sentinels = [&] { return hugging_face_tokenizer(folder.path() + "/")->special_ids().sentinels; };
  CHECK(sentinels() == 0);
  write_file(folder.file(kTokenizerConfigFile), R"({"tokenizer_class": "T5Tokenizer"})");
  CHECK(sentinels() == 100);
  write_file(folder.file(kTokenizerConfigFile), R"({"extra_ids": 7})");
  CHECK(sentinels() == 7);
}

TEST_CASE("SentencePiece: any bytes give ids of the vocabulary", "[sentence_piece]") {
  if (library_is_missing()) return;
  Draw draw(5);
  for (const std::string kind : kKinds) {
    const auto tokenizer = make_tokenizer({"sentencepiece", kind_file(kind + ".model"), ""});
    const auto encoder = tokenizer->make_encoder();
    for (int i = 0; i < 300; ++i) {
      const std::string text = i % 2 == 0 ? random_bytes(draw, 80) : random_utf8(draw, 80);
      for (const std::int32_t id : encode(*encoder, text)) REQUIRE((id >= 0 && id < tokenizer->vocab_size()));
    }
  }
}

TEST_CASE("SentencePiece: what is wrong in a model", "[sentence_piece][fault]") {
  const std::string good = contents(kind_file("spm_t5.model"));
  struct Case {
    std::string bytes;
    std::vector<std::string> parts;
  };
  const std::string map = field(3, field(2, "12345678901"));
  const Case cases[] = {
      {"", {"small.model", "no pieces"}},
      {good.substr(0, good.size() - 1), {"small.model", "cut off"}},
      {good.substr(0, 100), {"cut off"}},
      {"{\"model\": 1}", {"no model of SentencePiece"}},
      {piece("</s>", PieceType::control) + piece("a"), {"no unknown piece"}},
      {kSmall + piece("<u>", PieceType::unknown), {"two unknown pieces, 2 and 7"}},
      {piece("<unk>", PieceType::unknown) + piece("</s>"), {"no control piece \"</s>\""}},
      {kSmall + piece("ab\xff"), {"piece 7 is not UTF-8"}},
      {kSmall + piece(std::string("a\0b", 3)), {"piece 7 is not UTF-8, or has a NUL"}},
      {kSmall + piece(""), {"piece 7 has 0 bytes"}},
      {kSmall + piece("a"), {"\"a\" is there twice, with ids 4 and 7"}},
      {kSmall + piece("c", static_cast<PieceType>(9)), {"piece 7 has the unknown type 9"}},
      {kSmall + piece("c", PieceType::normal, std::nanf("")), {"piece 7 has the score nan"}},
      {kSmall + field(2, integer(3, 3)), {"model type word"}},
      {kSmall + field(2, integer(3, 4)), {"model type char"}},
      {kSmall + field(2, integer(3, 7)), {"model type 7, which SentencePiece does not have"}},
      {kSmall + field(2, integer(24, 1)), {"treat_whitespace_as_suffix"}},
      {kSmall + field(3, integer(5, 0)), {"escape_whitespaces"}},
      {kSmall + field(2, integer(35, 1)), {"lacks the piece of byte 0"}},
      {kSmall + map, {"table of characters is damaged"}},
      {kSmall + field(5, field(2, "12345678901")), {"table of characters is damaged"}},
      // Field 0x20000003, of which libsentencepiece's reader drops the bit above 32: a normalizer.
      {kSmall + "\x9A\x80\x80\x80\x10" + map.substr(1), {"no model of SentencePiece"}},
      {kSmall + std::string("\x02\0", 2), {"no model of SentencePiece"}},
      {kSmall + field(4, field(1, field(1, "ab") + field(2, "ab"))), {"texts to test itself"}},
  };
  for (const Case& c : cases) {
    INFO(c.parts.back());
    require_error(ErrorKind::data, c.parts, [&] { Small spoilt(c.bytes); });
  }
  require_error(ErrorKind::data, {"<extra_id_1> is an ordinary piece"},
                [&] { Small spoilt(kSmall + piece("<extra_id_1>"), 2); });
  const auto refused = [](const TokenizerChoice& choice, const std::vector<std::string>& parts) {
    require_error(ErrorKind::configuration, parts, [&] { make_tokenizer(choice); });
  };
  refused({"sentencepiece", "", ""}, {"--vocab-file", ".model"});
  refused({"sentencepiece", "a.model", "b"}, {"--merge-file"});
  refused({"sentencepiece", "tokenizer.json", ""}, {"--tokenizer unigram"});
}

TEST_CASE("SentencePiece: a first sentinel with id 0 is the only one", "[sentence_piece]") {
  if (library_is_missing()) return;
  const Small small(piece("<extra_id_0>", PieceType::control) + kSmall);
  CHECK(small.tokenizer->special_ids().first_sentinel == 0);
  CHECK(small.tokenizer->special_ids().sentinels == 1);
  CHECK(small.tokenizer->continues() == std::vector<std::uint8_t>{0, 0, 0, 1, 0, 1, 0, 1});
  const Small two(piece("<extra_id_1>", PieceType::control) + piece("<extra_id_0>", PieceType::control) + kSmall);
  CHECK(two.tokenizer->special_ids().sentinels == 2);
  CHECK(two.tokenizer->special_ids().sentinel_step == -1);
  CHECK(two.tokenizer->continues().size() == 9);
}

TEST_CASE("SentencePiece: at most 64 user-defined pieces that begin one another", "[sentence_piece][fault]") {
  const auto nested = [](std::size_t count) {
    std::string bytes = kSmall;
    for (std::size_t i = 0; i < count; ++i) bytes += piece(std::string(i + 2, 'a'), PieceType::user_defined);
    return bytes + piece("b" + std::string(8, 'a'), PieceType::user_defined);
  };
  require_error(ErrorKind::data, {"small.model", "65 user-defined pieces", "begin"}, [&] { Small spoilt(nested(65)); });
  if (library_is_missing()) return;
  CHECK(Small(nested(64)).ids(std::string(130, 'a')) == Ids{3, 70, 70});
}

TEST_CASE("SentencePiece: the library has as many pieces as the checked model", "[sentence_piece][fault]") {
  if (library_is_missing()) return;
  const TemporaryFolder folder;
  write_file(folder.file("small.model"), kSmall);
  SentencePieceModel model = read_sentence_piece_model(folder.file("small.model"), 0);
  model.text += piece("c");
  require_error(ErrorKind::data, {"small.model", "8 pieces", "7"},
                [&] { SentencePieceTokenizer(std::move(model), folder.file("small.model")); });
}

TEST_CASE("SentencePiece: a model that is too large is not read", "[sentence_piece][fault]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("large.model");
  std::ofstream(path).seekp(64 << 20).put('x');  // a hole
  require_error(ErrorKind::data, {"large.model", "bytes are too many"}, [&] {
    make_tokenizer({"sentencepiece", path, ""});
  });
}
