// SentencePiece: ids as its own library gives them for random strings
// (scripts/checks/check_tokenizers.py --golden), T5's sentinels, words, and models that are refused.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/sentence_piece_model.h"
#include "data/tokenizer_kinds/sentence_piece_tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const char* const kSentencePieceKinds[] = {"spm_t5", "spm_bytes", "spm_llama", "spm_bpe"};

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

const std::string kFirst =
    piece("<pad>", PieceType::control) + piece("</s>", PieceType::control) + piece("<unk>", PieceType::unknown);
const std::string kSmallModel = kFirst + piece(kMark, PieceType::normal, -3) + piece("a", PieceType::normal, -4) +
                                piece(kMark + "ab", PieceType::normal, -5) + piece("b", PieceType::normal, -4);

/// A model of these bytes.
struct SmallSentencePiece {
  TemporaryFolder folder;
  std::unique_ptr<Tokenizer> tokenizer;

  explicit SmallSentencePiece(const std::string& bytes = kSmallModel, std::int64_t extra_ids = 0) {
    write_file(folder.file("small.model"), bytes);
    tokenizer = make_tokenizer({"sentencepiece", folder.file("small.model"), "", extra_ids});
  }
  std::vector<std::int32_t> ids(const std::string& text, SpecialTokens special = SpecialTokens::text) const {
    return encode(*tokenizer->make_encoder(special), text);
  }
};

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("SentencePiece: the ids that its library gives", "[sentence_piece]") {
  for (const std::string kind : kSentencePieceKinds) {
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

TEST_CASE("SentencePiece: mT5's sentinels are pieces that begin words", "[sentence_piece]") {
  const auto sentinel = [](const char* name) { return piece(kMark + name, PieceType::user_defined); };
  const SmallSentencePiece small(kSmallModel + sentinel("<extra_id_1>") + sentinel("<extra_id_0>"));
  const SpecialIds special = small.tokenizer->special_ids();
  CHECK(special.sentinels == 2);
  CHECK(special.first_sentinel == 8);
  CHECK(special.sentinel_step == -1);
  CHECK(make_tokenizer({"sentencepiece", small.folder.file("small.model"), "", 2})->hash() == small.tokenizer->hash());
}

TEST_CASE("SentencePiece: pieces that begin words, and special tokens", "[sentence_piece]") {
  const SmallSentencePiece small(kSmallModel, 2);
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
  const TemporaryFolder folder;
  write_file(folder.file("spiece.model"), contents(kind_file("spm_t5.model")));
  const auto sentinels = [&] { return hugging_face_tokenizer(folder.path() + "/").tokenizer->special_ids().sentinels; };
  CHECK(sentinels() == 0);
  write_file(folder.file(kTokenizerConfigFile), R"({"tokenizer_class": "T5Tokenizer"})");
  CHECK(sentinels() == 100);
  write_file(folder.file(kTokenizerConfigFile), R"({"extra_ids": 7})");
  CHECK(sentinels() == 7);
  // Without the name of a class it is that of the model.
  write_file(folder.file(kTokenizerConfigFile), "{}");
  write_file(folder.file("config.json"), R"({"model_type": "t5"})");
  CHECK(sentinels() == 100);
  write_file(folder.file("config.json"), R"({"model_type": "llama"})");
  CHECK(sentinels() == 0);
}

TEST_CASE("SentencePiece: the tokens of added_tokens.json follow the pieces", "[sentence_piece]") {
  const TemporaryFolder folder;
  const std::string before = folder.path() + "/", long_name = "<" + std::string(200, 'x') + ">";
  write_file(folder.file(kSentencePieceFile), kSmallModel);
  const auto made = [&](const json& added, const json& config, std::int64_t rows = 0) {
    write_file(folder.file(kAddedTokensFile), added.dump());
    write_file(folder.file(kTokenizerConfigFile), config.dump());
    return hugging_face_tokenizer(before, rows);
  };
  const auto encoded = [](const FolderTokenizer& of, const std::string& text, SpecialTokens special) {
    return encode(*of.tokenizer->make_encoder(special), text);
  };
  const json three = {{"<|im_start|>", 7}, {"</s>", 1}, {long_name, 8}};
  const json names = {{"additional_special_tokens", {"<|im_start|>", long_name}}};
  const FolderTokenizer chat = made(three, names);
  REQUIRE(chat.tokenizer != nullptr);
  CHECK(chat.tokenizer->vocab_size() == 9);
  CHECK(encoded(chat, "<|im_start|>ab" + long_name, SpecialTokens::tokens) == Ids{7, 5, 8});
  CHECK(encoded(chat, "a", SpecialTokens::text) ==
        encoded(made(json::object(), json::object()), "a", SpecialTokens::text));
  // A token that no file calls special is found in every text.
  const json decoder = {{"added_tokens_decoder", {{"7", {{"content", "<|im_start|>"}}}}}};
  for (const json& config : {json::object(), decoder}) {
    const FolderTokenizer found = made(three, config);
    CHECK(encoded(found, "<|im_start|>", SpecialTokens::text).back() == 7);
    CHECK(found.tokenizer->hash() != chat.tokenizer->hash());
  }
  // The kept file has them, without the others next to it.
  const TemporaryFolder kept;
  write_file(kept.file(kSentencePieceFile), std::string(chat.tokenizer->files()[0].contents));
  CHECK(find_kept_tokenizer("sentencepiece", chat.tokenizer->hash(), kept.path() + "/").tokenizer != nullptr);
  // Tokens that the model has no row for are left out.
  const FolderTokenizer fewer = made(three, json::object(), 8);
  CHECK(fewer.tokenizer->vocab_size() == 8);
  CHECK(fewer.left_out == 1);
  for (const auto& [added, part] :
       std::vector<std::pair<json, std::string>>{{{{"<x>", 9}}, "the id 9 to \"<x>\", and the next id is 7"},
                                                 {{{"a", 7}}, "the id 7 to \"a\", which is piece 4"},
                                                 {{{"<x>", -1}}, "added_tokens.json: the token \"<x>\" has the id -1"},
                                                 {{{"<x>", "7"}}, "has the id \"7\""}}) {
    const FolderTokenizer refused = made(added, json::object());
    CHECK(refused.tokenizer == nullptr);
    CAPTURE(refused.refused);
    CHECK(refused.refused.find(part) != std::string::npos);
  }
  const json twice = {{"7", {{"content", "<x>"}}}, {"8", {{"content", "<x>"}}}};
  const FolderTokenizer contradiction = made(three, {{"added_tokens_decoder", twice}});
  CHECK(contradiction.refused.find("the token \"<x>\" has the ids 7 and 8") != std::string::npos);
}

TEST_CASE("SentencePiece: a space after a special token, as \"legacy\" says", "[sentence_piece]") {
  const TemporaryFolder folder, kept;
  const std::string before = folder.path() + "/";
  std::filesystem::copy_file(kind_file("spm_llama.model"), folder.file(kSentencePieceFile));
  const auto made = [&](const char* config) {
    write_file(folder.file(kTokenizerConfigFile), config);
    return hugging_face_tokenizer(before).tokenizer;
  };
  const auto ids = [](const Tokenizer& of, const std::string& text, SpecialTokens special = SpecialTokens::tokens) {
    return encode(*of.make_encoder(special), text);
  };
  const auto old = made(R"({"legacy": true})"), other = made(R"({"legacy": false})");
  CHECK(made("{}")->hash() == old->hash());
  CHECK(made(R"({"legacy": null})")->hash() == old->hash());
  CHECK(other->hash() != old->hash());
  const std::string end = old->eod_text();
  const Ids word = ids(*old, "the");
  Ids again = word;
  again.push_back(old->eod_id());
  Ids bare = again;
  again.insert(again.end(), word.begin(), word.end());
  CHECK(ids(*old, "the" + end + "the") == again);
  CHECK(ids(*old, "the" + end + " the") != again);
  // Without the space the text continues as it is written; a space that is there is the word's.
  CHECK(ids(*other, "the" + end + " the") == again);
  CHECK(ids(*other, "the" + end + "the") != again);
  CHECK(ids(*other, "the" + end) == bare);
  CHECK(other->decode(ids(*other, end + "the")) == "the");
  CHECK(ids(*other, "the", SpecialTokens::text) == word);
  // The parts of a text are where they were, and the kept file says the same by itself.
  std::vector<std::int32_t> parted;
  std::vector<std::uint32_t> part_of;
  const std::string text = end + "the";
  other->make_encoder()->encode_parts(
      std::vector<TextPart>{{std::string_view(text).substr(0, end.size()), SpecialTokens::tokens}, {"the"}}, parted,
      part_of);
  CHECK(parted == ids(*other, text));
  CHECK(part_of.front() == 0);
  CHECK(part_of.at(1) == 1);
  write_file(kept.file(kSentencePieceFile), std::string(other->files()[0].contents));
  CHECK(find_kept_tokenizer("sentencepiece", other->hash(), kept.path() + "/").tokenizer != nullptr);
}

TEST_CASE("SentencePiece: a kept model ignores the files next to it", "[sentence_piece]") {
  const TemporaryFolder folder;
  write_file(folder.file(kSentencePieceFile), kSmallModel);
  const auto plain = make_tokenizer({"sentencepiece", folder.file(kSentencePieceFile), ""});
  write_file(folder.file(kAddedTokensFile), R"({"<of another>": 7})");
  write_file(folder.file(kTokenizerConfigFile), R"({"legacy": false})");
  CHECK(find_kept_tokenizer("sentencepiece", plain->hash(), folder.path() + "/").tokenizer != nullptr);
}

TEST_CASE("SentencePiece: what is wrong in the files next to a model", "[sentence_piece][fault]") {
  const TemporaryFolder folder;
  write_file(folder.file(kSentencePieceFile), kSmallModel);
  const auto refused = [&](const char* name, const std::string& contents, const std::string& part) {
    write_file(folder.file(name), contents);
    require_error(ErrorKind::data, {folder.file(name), part},
                  [&] { make_tokenizer(choice_of_file(folder.file(kSentencePieceFile), "")); });
    std::filesystem::remove(folder.file(name));
  };
  const auto decoder = [](const std::string& token) {
    return "{\n\"added_tokens_decoder\": {\n\"7\": " + token + "}}";
  };
  refused(kTokenizerConfigFile, decoder(R"({"content": null})"),
          ":3: \"added_tokens_decoder.7.content\" names no token");
  refused(kTokenizerConfigFile, decoder(R"({"content": 5})"),
          ":3: \"added_tokens_decoder.7.content\" is 5, where a text is right");
  refused(kTokenizerConfigFile, decoder(R"({"content": "<x>", "special": "yes"})"),
          ":3: \"added_tokens_decoder.7.special\" is \"yes\", where true or false is right");
  refused(kTokenizerConfigFile, decoder("\"<x>\""), ":2: \"added_tokens_decoder.7\" is no object");
  refused(kTokenizerConfigFile, "{\n\"added_tokens_decoder\": []}", ":2: \"added_tokens_decoder\" is []");
  refused(kTokenizerConfigFile, R"({"legacy": "no"})", ":1: \"legacy\" is \"no\"");
  refused(kTokenizerConfigFile, R"({"legacy": )", "no JSON object, or one that is cut off");
  refused(kTokenizerConfigFile, "[]", "no JSON object");
  refused(kAddedTokensFile, R"({"<x>": null})", "the token \"<x>\" has the id null");
  refused(kAddedTokensFile, R"({"": 7})", "the token \"\" of 0 bytes");
}

TEST_CASE("SentencePiece: any bytes give ids of the vocabulary", "[sentence_piece]") {
  Draw draw(5);
  for (const std::string kind : kSentencePieceKinds) {
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
      {kSmallModel + piece("<u>", PieceType::unknown), {"two unknown pieces, 2 and 7"}},
      {piece("<unk>", PieceType::unknown) + piece("</s>"), {"no control piece \"</s>\""}},
      {kSmallModel + piece("ab\xff"), {"piece 7 is not UTF-8"}},
      {kSmallModel + piece(std::string("a\0b", 3)), {"piece 7 is not UTF-8, or has a NUL"}},
      {kSmallModel + piece(""), {"piece 7 has 0 bytes"}},
      {kSmallModel + piece("a"), {"\"a\" is there twice, with ids 4 and 7"}},
      {kSmallModel + piece("c", static_cast<PieceType>(9)), {"piece 7 has the unknown type 9"}},
      {kSmallModel + piece("c", PieceType::normal, std::nanf("")), {"piece 7 has the score nan"}},
      {kSmallModel + field(2, integer(3, 3)), {"model type word"}},
      {kSmallModel + field(2, integer(3, 4)), {"model type char"}},
      {kSmallModel + field(2, integer(3, 7)), {"model type 7, which SentencePiece does not have"}},
      {kSmallModel + field(2, integer(24, 1)), {"treat_whitespace_as_suffix"}},
      {kSmallModel + field(3, integer(5, 0)), {"escape_whitespaces"}},
      {kSmallModel + field(2, integer(35, 1)), {"lacks the piece of byte 0"}},
      {kSmallModel + piece("<0x41>", PieceType::byte), {"the piece \"<0x41>\" cannot stand for a byte"}},
      {kSmallModel + map, {"table of characters is damaged"}},
      {kSmallModel + field(5, field(2, "12345678901")), {"table of characters is damaged"}},
      // Field 0x20000003: a normalizer for readers that drop the bit above 32.
      {kSmallModel + "\x9A\x80\x80\x80\x10" + map.substr(1), {"no model of SentencePiece"}},
      {kSmallModel + std::string("\x02\0", 2), {"no model of SentencePiece"}},
      {kSmallModel + field(4, field(1, field(1, "ab") + field(2, "ab"))), {"texts to test itself"}},
  };
  for (const Case& c : cases) {
    INFO(c.parts.back());
    require_error(ErrorKind::data, c.parts, [&] { SmallSentencePiece spoilt(c.bytes); });
  }
  require_error(ErrorKind::data, {"<extra_id_1> is an ordinary piece"},
                [&] { SmallSentencePiece spoilt(kSmallModel + piece("<extra_id_1>"), 2); });
  const auto refused = [](const TokenizerChoice& choice, const std::vector<std::string>& parts) {
    require_error(ErrorKind::configuration, parts, [&] { make_tokenizer(choice); });
  };
  refused({"sentencepiece", "", ""}, {"--vocab-file", ".model"});
  refused({"sentencepiece", "a.model", "b"}, {"--merge-file"});
  refused({"sentencepiece", "tokenizer.json", ""}, {"--tokenizer unigram"});
}

TEST_CASE("SentencePiece: a first sentinel with id 0 is the only one", "[sentence_piece]") {
  const SmallSentencePiece small(piece("<extra_id_0>", PieceType::control) + kSmallModel);
  CHECK(small.tokenizer->special_ids().first_sentinel == 0);
  CHECK(small.tokenizer->special_ids().sentinels == 1);
  CHECK(small.tokenizer->continues() == std::vector<std::uint8_t>{0, 0, 0, 1, 0, 1, 0, 1});
  const SmallSentencePiece two(piece("<extra_id_1>", PieceType::control) + piece("<extra_id_0>", PieceType::control) +
                               kSmallModel);
  CHECK(two.tokenizer->special_ids().sentinels == 2);
  CHECK(two.tokenizer->special_ids().sentinel_step == -1);
  CHECK(two.tokenizer->continues().size() == 9);
}

TEST_CASE("SentencePiece: user-defined and unused pieces of a unigram model", "[sentence_piece]") {
  const SmallSentencePiece small(kSmallModel + piece("abc", PieceType::user_defined) +
                                 piece("ab", PieceType::user_defined) + piece("c", PieceType::normal, -2) +
                                 piece("bb", PieceType::unused));
  CHECK(small.ids("xabcab bb") == Ids{3, 2, 7, 8, 3, 6, 6});
  CHECK(small.ids("ab abc") == Ids{3, 8, 3, 7});
  CHECK(small.ids("aab") == Ids{3, 4, 8});
  std::string nested = kSmallModel;
  for (std::size_t i = 0; i < 70; ++i) nested += piece(std::string(i + 2, 'a'), PieceType::user_defined);
  CHECK(SmallSentencePiece(nested).ids(std::string(150, 'a')) == Ids{3, 15, 74, 76});
}

TEST_CASE("SentencePiece: BPE merges by score, and unused pieces fall apart", "[sentence_piece]") {
  std::string bytes = kFirst + field(2, integer(3, 2));
  for (const std::string& letter : {kMark, std::string("a"), std::string("b"), std::string("c")}) {
    bytes += piece(letter, PieceType::normal, -9);
  }
  bytes += piece("ab", PieceType::normal, -1) + piece("bc", PieceType::normal, -1) +
           piece("abc", PieceType::unused, -2) + piece("cc", PieceType::user_defined, -9) +
           piece("aa", PieceType::normal, -1) + piece("d", PieceType::unused, -1);
  const SmallSentencePiece small(bytes);
  CHECK(small.ids("abc") == Ids{3, 7, 6});
  CHECK(small.ids("aabc") == Ids{3, 11, 8});
  CHECK(small.ids("abcc") == Ids{3, 7, 10});
  CHECK(small.ids("aaab") == Ids{3, 11, 7});
  CHECK(small.ids("xabd") == Ids{3, 2, 7, 2});
}

TEST_CASE("SentencePiece: large sums of scores begin again at 0", "[sentence_piece]") {
  const SmallSentencePiece small(kFirst + piece(kMark, PieceType::normal, -3) + piece("a", PieceType::normal, -30000) +
                                 piece("aa", PieceType::normal, -60000.004f) + piece("b", PieceType::normal, -30000));
  CHECK(small.ids("aaaaaaaaaa") == Ids{3, 4, 5, 5, 5, 5, 4});
}

TEST_CASE("SentencePiece: a model that is too large is not read", "[sentence_piece][fault]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("large.model");
  std::ofstream(path).seekp(64 << 20).put('x');  // a hole
  require_error(ErrorKind::data, {"large.model", "bytes are too many"}, [&] {
    make_tokenizer({"sentencepiece", path, ""});
  });
}
