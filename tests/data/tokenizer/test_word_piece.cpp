// BERT's WordPiece: ids and texts as Hugging Face's library gives them for random strings
// (scripts/checks/check_tokenizers.py
// --golden), single rules by hand, special tokens, and files that are refused.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/tokenizer/tokenizer_export.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/lfs_pointer.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

struct WordPieceKind {
  const char *file, *name;
};
constexpr WordPieceKind kWordPieceKinds[] = {{"bert_uncased.txt", "bert-uncased"},
                                             {"bert_cased.txt", "bert-cased"},
                                             {"bert_lower_accents.json", "bert-uncased"},
                                             {"bert_bare_case.json", "bert-cased"}};

const char* const kSmallWords =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n##a\na\nab\n##b\n!\n,\n\u4e00\ne\n##"
    "\u0301\ncaf\u00e9\ncafe\n";

/// Encodes texts with a vocabulary of these lines.
struct SmallWordPiece {
  TemporaryFolder folder;
  std::unique_ptr<Tokenizer> tokenizer;

  explicit SmallWordPiece(const std::string& name = "bert-uncased", std::int64_t extra_ids = 0,
                          const std::string& lines = kSmallWords) {
    write_file(folder.file(kWordPieceFile), lines);
    tokenizer = make_tokenizer({name, folder.file(kWordPieceFile), "", extra_ids});
  }
  std::string pieces(const std::string& text, SpecialTokens special = SpecialTokens::text) const {
    const auto encoder = tokenizer->make_encoder(special);
    const auto ids = encode(*encoder, text);
    CHECK(encode(*encoder, text) == ids);  // from its memory
    std::string result;
    for (const std::int32_t id : ids) result += (result.empty() ? "" : " ") + std::to_string(id);
    return result;
  }
};

}  // namespace

TEST_CASE("WordPiece: the ids and texts of Hugging Face's library", "[word_piece]") {
  for (const auto& [file, name] : kWordPieceKinds) {
    INFO(file);
    const std::string kind = std::filesystem::path(file).stem();
    const json cases = json::parse(std::ifstream(kind_file(kind + ".cases.json")));
    REQUIRE(cases.size() == 100);
    const auto tokenizer = make_tokenizer({name, kind_file(file), ""});
    const auto as_text = tokenizer->make_encoder(), as_tokens = tokenizer->make_encoder(SpecialTokens::tokens);
    for (int round = 0; round < 2; ++round) {  // the second time from the encoders' memory
      for (const json& one : cases) {
        const std::string text = one.at("text");
        INFO("text: " << one.at("text").dump(-1, ' ', true));
        const auto ids = encode(*as_text, text);
        CHECK(ids == one.at("ids").get<std::vector<std::int32_t>>());
        CHECK((tokenizer->decode(ids) == one.at("decoded").get<std::string>()));
        // [BOS] and [EOS], which transformers does not know, are tokens here.
        if (text.find("OS]") != std::string::npos && std::string(file).ends_with(".txt")) continue;
        CHECK(encode(*as_tokens, text) == one.at("special").get<std::vector<std::int32_t>>());
      }
    }
  }
}

TEST_CASE("WordPiece: words, pieces, marks and ideographs", "[word_piece]") {
  const SmallWordPiece uncased, cased("bert-cased");
  CHECK(uncased.pieces("unaffable") == "5 6 7");
  CHECK(uncased.pieces("UNaffABLE,ab!") == "5 6 7 13 10 12");
  CHECK(cased.pieces("UNaffABLE,ab!") == "1 13 10 12");
  CHECK(uncased.pieces("abx a\tb") == "1 9 1");
  CHECK(uncased.pieces("a\u4e00a") == "9 14 9");
  CHECK(uncased.pieces("caf\u00e9 CAFE\u0301") == "18 18");
  CHECK(cased.pieces("caf\u00e9 e\u0301") == "17 15 16");
  CHECK(uncased.pieces("a\u0001b a\u200bb a\xff\xfe"
                       "b") == "10 10 10");
  CHECK(uncased.pieces("").empty());
  CHECK(uncased.pieces(" \n\u00a0\u0000").empty());
  CHECK(uncased.pieces("a" + std::string(99, 'b')) == [] {
    std::string all = "10";
    for (int i = 0; i < 98; ++i) all += " 11";
    return all;
  }());
  CHECK(uncased.pieces("a" + std::string(100, 'b')) == "1");
  CHECK(uncased.pieces("[MASK] a") == "1 1 1 9");
  CHECK(uncased.pieces("[MASK] a[EOS]", SpecialTokens::tokens) == "4 9 20");
}

TEST_CASE("WordPiece: [BOS], [EOS] and sentinels follow the vocabulary", "[word_piece]") {
  const SmallWordPiece plain, extra("bert-uncased", 3);
  CHECK(plain.tokenizer->vocab_size() == 21);  // as 30522 becomes 30524 in Megatron-LM
  CHECK(extra.tokenizer->vocab_size() == 24);
  const SpecialIds special = extra.tokenizer->special_ids();
  CHECK((special == SpecialIds{2, 3, 4, 0, 19, 20, 1, 21, 3}));
  CHECK(plain.tokenizer->special_ids().sentinels == 0);
  CHECK(plain.tokenizer->eod_id() == 20);
  CHECK(plain.tokenizer->eod_text() == "[EOS]");
  CHECK(plain.tokenizer->hash() != extra.tokenizer->hash());
  CHECK(plain.tokenizer->hash() != SmallWordPiece("bert-cased").tokenizer->hash());
  // The file that is kept gives the same vocabulary, without the option and with it.
  const TokenizerFile kept = extra.tokenizer->files().front();
  CHECK(kept.name == kWordPieceFile);
  for (const std::int64_t again : {0, 2, 3}) {
    CHECK(SmallWordPiece("bert-uncased", again, std::string(kept.contents)).tokenizer->hash() ==
          extra.tokenizer->hash());
  }
  CHECK(SmallWordPiece("bert-uncased", 5, std::string(kept.contents)).tokenizer->special_ids().sentinels == 5);
  const std::vector<std::uint8_t> continues = extra.tokenizer->continues();
  REQUIRE(continues.size() == 24);
  CHECK((continues[5] == 0 && continues[6] == 1 && continues[16] == 1 && continues[20] == 0));
  CHECK(find_kept_tokenizer("bert-uncased", plain.tokenizer->hash(), plain.folder.path() + "/").tokenizer != nullptr);
  CHECK(find_kept_tokenizer("bert-cased", plain.tokenizer->hash(), plain.folder.path() + "/").tokenizer == nullptr);
}

TEST_CASE("WordPiece: text of ids, whole and one after the other", "[word_piece]") {
  const SmallWordPiece small;
  const std::vector<std::int32_t> ids = {5, 6, 7, 13, 10, 12, 4, 20};
  CHECK(small.tokenizer->decode(ids) == "unaffable, ab! [MASK]");
  std::string text;
  for (const std::int32_t id : ids) text += small.tokenizer->decode_next(id);
  CHECK(text == " unaffable, ab! [MASK]");
  for (const std::int32_t id : {-1, 21}) {
    require_error(ErrorKind::data, {"0 .. 20"}, [&] { small.tokenizer->decode(std::vector<std::int32_t>{id}); });
  }
}

TEST_CASE("WordPiece: its tokenizer.json is the same tokenizer", "[word_piece]") {
  const TemporaryFolder folder;
  for (const auto& [file, name] : kWordPieceKinds) {
    INFO(file);
    const auto tokenizer = make_tokenizer({name, kind_file(file), "", 2});
    write_file(folder.file(kTokenizerFile), tokenizer->tokenizer_json());
    const auto again = make_tokenizer({name, folder.file(kTokenizerFile), ""});
    CHECK(again->hash() == tokenizer->hash());
    CHECK((again->special_ids() == tokenizer->special_ids()));
    const json config = json::parse(write_tokenizer_config(*tokenizer, 512));
    CHECK(config.at("mask_token") == "[MASK]");
    CHECK(config.at("eos_token") == "[EOS]");
  }
  require_error(ErrorKind::configuration, {"bert-cased"}, [&] {
    make_tokenizer({"bert-uncased", kind_file("bert_bare_case.json"), ""});
  });
  require_error(ErrorKind::data, {"--tokenizer bert-uncased"}, [&] {
    make_tokenizer({"gpt2", kind_file("bert_bare_case.json"), ""});
  });
}

TEST_CASE("WordPiece: no text ends a document, whatever a tokenizer.json says", "[word_piece]") {
  const TemporaryFolder folder;
  json file = json::parse(std::ifstream(kind_file("bert_lower_accents.json")));
  for (json& token : file.at("added_tokens")) token["special"] = false;
  write_file(folder.file(kTokenizerFile), file.dump());
  const auto tokenizer = make_tokenizer({"bert-uncased", folder.file(kTokenizerFile), ""});
  const auto ids = encode(*tokenizer->make_encoder(), "[EOS] [MASK]");
  CHECK(std::count(ids.begin(), ids.end(), tokenizer->eod_id()) == 0);
  CHECK(ids.back() == tokenizer->special_ids().mask);
}

TEST_CASE("WordPiece: the tokenizer of a Hugging Face folder, by its files", "[word_piece]") {
  const TemporaryFolder folder;
  const std::string before = folder.path() + "/";
  const auto name = [&] { return hugging_face_tokenizer(before).tokenizer->name(); };
  CHECK(hugging_face_tokenizer(before).tokenizer == nullptr);
  write_file(folder.file(kWordPieceFile), kSmallWords);
  CHECK(name() == "bert-uncased");
  for (const auto& [config, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"({"do_lower_case": false})", "bert-cased"}, {R"({"do_lower_case": true})", "bert-uncased"}}) {
    write_file(folder.file(kTokenizerConfigFile), config);
    CHECK(name() == expected);
  }
  for (const char* config : {"[]", "{"}) {  // it may have said that it is cased
    write_file(folder.file(kTokenizerConfigFile), config);
    const FolderTokenizer refused = hugging_face_tokenizer(before);
    CHECK(refused.tokenizer == nullptr);
    CHECK(refused.refused.find("tokenizer_config.json:1: no JSON object, or one that is cut off") != std::string::npos);
  }
  write_file(folder.file(kTokenizerConfigFile), "{}");
  for (const char* file : {kVocabFile, kMergeFile}) {
    std::filesystem::copy_file(golden_file(file), folder.file(file));
  }
  CHECK(name() == "gpt2");
  std::filesystem::copy_file(kind_file("bert_bare_case.json"), folder.file(kTokenizerFile));
  CHECK(name() == "bert-cased");
  write_file(folder.file(kTokenizerFile), R"({"model": {"type": "Unigram"}})");
  const FolderTokenizer other = hugging_face_tokenizer(before);  // vocab.json and vocab.txt contradict it
  CHECK(other.tokenizer == nullptr);
  CHECK(other.refused.find("tokenizer.json:1: ") != std::string::npos);
}

TEST_CASE("Hugging Face folder: what a refused tokenizer.json falls back to", "[word_piece]") {
  const TemporaryFolder folder;
  const std::string before = folder.path() + "/";
  for (const char* file : {kVocabFile, kMergeFile}) {
    std::filesystem::copy_file(golden_file(file), folder.file(file));
  }
  const auto made_of = [&](const std::string& tokenizer_json, const std::string& config) {
    write_file(folder.file(kTokenizerFile), tokenizer_json);
    write_file(folder.file(kTokenizerConfigFile), config);
    const FolderTokenizer made = hugging_face_tokenizer(before);
    CHECK_FALSE(made.refused.empty());
    CHECK((made.tokenizer == nullptr) == made.file.empty());
    return made.file.empty() ? "" : made.file.substr(before.size());
  };
  const std::string damaged = "{", other_words = R"({"pre_tokenizer": {"type": "Digits"}, "model": {"type": "BPE"}})";
  CHECK(made_of(damaged, "{}") == kVocabFile);
  CHECK(made_of(kLfsPointer, "{}") == kVocabFile);
  CHECK(made_of(damaged, R"({"tokenizer_class": "GPT2TokenizerFast"})") == kVocabFile);
  CHECK(made_of(damaged, R"({"tokenizer_class": "Qwen2Tokenizer"})").empty());
  CHECK(made_of(other_words, "{}").empty());
  CHECK(made_of(R"({"normalizer": {"type": "Prepend"}})", "{}").empty());
  write_file(folder.file(kWordPieceFile), kSmallWords);
  CHECK(made_of(R"({"pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "WordPiece"}})", "{}") ==
        kWordPieceFile);
}

TEST_CASE("WordPiece: any bytes give ids of the vocabulary", "[word_piece]") {
  Draw draw(5);
  for (const auto& [file, name] : kWordPieceKinds) {
    const auto tokenizer = make_tokenizer({name, kind_file(file), ""});
    const auto encoder = tokenizer->make_encoder();
    for (int i = 0; i < 300; ++i) {
      const std::string text = i % 2 == 0 ? random_bytes(draw, 80) : random_utf8(draw, 80);
      for (const std::int32_t id : encode(*encoder, text)) REQUIRE((id >= 0 && id < tokenizer->vocab_size()));
    }
  }
}

TEST_CASE("WordPiece: what is wrong in a vocab.txt, by line", "[word_piece][fault]") {
  const std::string small = kSmallWords;
  const auto without = [&](const std::string& line) {
    std::string lines = small;
    return lines.erase(lines.find(line), line.size());
  };
  struct Case {
    std::string lines;
    std::vector<std::string> parts;
  };
  const Case cases[] = {{without("[MASK]\n"), {"vocab.txt:19:", "no token [MASK]", "--type wordpiece"}},
                        {without("[UNK]\n"), {"no token [UNK]"}},
                        {without("[PAD]\n"), {"no token [PAD]"}},
                        {"", {"vocab.txt:", "no token [CLS]"}},
                        {small + "un\n", {"vocab.txt:20:", "\"un\" is there twice, with ids 5 and 19"}},
                        {small + "\nx\n", {"vocab.txt:20:", "an empty line"}},
                        {small + "x\r\n", {"vocab.txt:20:", "CR LF"}},
                        {small + "\xff\n", {"vocab.txt:20:", "invalid UTF-8"}},
                        {small + std::string(5000, 'x') + "\n", {"vocab.txt:20:", "5000 bytes"}}};
  for (const Case& c : cases)
    require_error(ErrorKind::data, c.parts, [&] { SmallWordPiece spoilt("bert-uncased", 0, c.lines); });
  require_error(ErrorKind::data, {"ids in a row"},
                [&] { SmallWordPiece spoilt("bert-cased", 2, small + "<extra_id_1>\n"); });
  const auto refused = [](const TokenizerChoice& choice, const std::vector<std::string>& parts) {
    require_error(ErrorKind::configuration, parts, [&] { make_tokenizer(choice); });
  };
  refused({"bert-uncased", "", ""}, {"--vocab-file", "vocab.txt"});
  refused({"bert-cased", "v.txt", "m.txt"}, {"--merge-file"});
  refused({"bert-cased", "v.txt", "", -1}, {"--extra-ids -1"});
  refused({"bert-cased", "v.txt", "", 1'000'000}, {"--extra-ids 1000000"});
  refused({"byte", "", "", 1}, {"--extra-ids", "byte"});
}

TEST_CASE("WordPiece: errors in a tokenizer.json are told by line", "[word_piece][fault]") {
  const TemporaryFolder folder;
  json good = json::parse(std::ifstream(kind_file("bert_lower_accents.json")));
  struct Case {
    const char* place;
    json value;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"/normalizer", nullptr, {"a normalizer of 0 steps"}},
      {"/normalizer/type", "NFC", {"normalizer of type NFC"}},
      {"/normalizer/lowercase", 1, {"lowercase = 1"}},
      {"/pre_tokenizer/type", "Whitespace", {"pre_tokenizer of type Whitespace"}},
      {"/decoder/prefix", "@@", {"decoder.prefix"}},
      {"/model/type", "Unigram", {"model.type"}},
      {"/model/unk_token", "<unk>", {"model.unk_token"}},
      {"/model/continuing_subword_prefix", "@@", {"continuing_subword_prefix"}},
      {"/model/max_input_chars_per_word", -1, {"not a tokenizer.json"}},
      {"/model/vocab/new", 1, {"two tokens have id 1"}},
      {"/model/vocab/new", 100000, {"ids must be 0 .. n-1"}},
      {"/added_tokens/0/id", 9, {"is there twice"}},
      {"/added_tokens/0/other", 1, {"\"other\" of an added token"}},
      {"/surprise", 1, {"\"surprise\""}},
  };
  for (const Case& c : cases) {
    INFO(c.place);
    json spoilt = good;
    spoilt[json::json_pointer(c.place)] = c.value;
    write_file(folder.file(kTokenizerFile), spoilt.dump(1));
    std::vector<std::string> parts = c.parts;
    parts.push_back("tokenizer.json:");
    require_error(ErrorKind::data, parts, [&] { make_tokenizer({"bert-uncased", folder.file(kTokenizerFile), ""}); });
  }
  const std::string text = good.dump();
  write_file(folder.file(kTokenizerFile), "{\"model\": {},\n" + text.substr(1));
  require_error(ErrorKind::data, {"tokenizer.json:2: ", "\"model\" is there twice"}, [&] {
    make_tokenizer({"bert-uncased", folder.file(kTokenizerFile), ""});
  });
  good.erase("padding");
  write_file(folder.file(kTokenizerFile), "{\n\"padding\": 1e999," + good.dump().substr(1));
  const std::int64_t size = make_tokenizer({"bert-uncased", folder.file(kTokenizerFile), ""})->vocab_size();
  const auto more = make_tokenizer({"bert-uncased", folder.file(kTokenizerFile), "", 5});
  CHECK(more->special_ids().sentinels == 5);
  CHECK(more->vocab_size() >= size + 5);
  good.erase("model");
  write_file(folder.file(kTokenizerFile), good.dump());
  require_error(ErrorKind::data, {"no model"}, [&] {
    make_tokenizer({"bert-uncased", folder.file(kTokenizerFile), ""});
  });
}
