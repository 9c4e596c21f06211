// Settings of a model's folder that stand next to its vocabulary: added tokens, and how words are found. Folders of
// these kinds have the ids of transformers 5.24.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/tokenizer/gpt2_support.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

using Ids = std::vector<std::int32_t>;

Ids tokens_in(const Tokenizer& tokenizer, const std::string& text, SpecialTokens special = SpecialTokens::text) {
  return encode(*tokenizer.make_encoder(special), text);
}

/// The files that are kept are the same tokenizer, whatever lies next to them.
void check_kept(const Tokenizer& tokenizer) {
  const TemporaryFolder kept;
  for (const TokenizerFile& file : tokenizer.files()) write_file(kept.file(file.name), std::string(file.contents));
  write_file(kept.file(kTokenizerConfigFile), R"({"add_prefix_space": true, "strip_accents": true})");
  write_file(kept.file(kAddedTokensFile), R"({"<of another>": 7})");
  CHECK(find_kept_tokenizer(tokenizer.name(), tokenizer.hash(), kept.path() + "/").tokenizer != nullptr);
}

struct ModelFolder {
  TemporaryFolder folder;

  void copy(const std::string& from, const char* name) const { std::filesystem::copy_file(from, folder.file(name)); }
  FolderTokenizer made(const json& config, const json& added, std::int64_t rows = 0) const {
    write_file(folder.file(kTokenizerConfigFile), config.dump());
    write_file(folder.file(kAddedTokensFile), added.dump());
    return hugging_face_tokenizer(folder.path() + "/", rows);
  }
};

}  // namespace

TEST_CASE("folder settings: added tokens and a first space of GPT-2's files") {
  const ModelFolder folder;
  folder.copy(golden_file(kVocabFile), kVocabFile);
  folder.copy(golden_file(kMergeFile), kMergeFile);
  const auto plain = folder.made({{"tokenizer_class", "GPT2Tokenizer"}}, json::object()).tokenizer;
  CHECK(plain->hash() == small_tokenizer()->hash());
  check_kept(*plain);
  const auto rows = static_cast<std::int32_t>(plain->vocab_size());
  const json decoder = {{std::to_string(rows), {{"content", "<|im_start|>"}, {"special", true}}},
                        {std::to_string(rows + 1), {{"content", "x y"}, {"rstrip", true}}}};
  const json added = {{"<of another version>", rows}};  // not looked at next to a decoder
  const auto more = folder.made({{"added_tokens_decoder", decoder}}, added).tokenizer;
  REQUIRE(more != nullptr);
  CHECK(more->vocab_size() == rows + 2);
  CHECK(more->eod_id() == plain->eod_id());
  CHECK(tokens_in(*more, "hello") == tokens_in(*plain, "hello"));
  CHECK(tokens_in(*more, "<|im_start|>") == tokens_in(*plain, "<|im_start|>"));
  CHECK(tokens_in(*more, "<|im_start|>", SpecialTokens::tokens) == Ids{rows});
  CHECK(tokens_in(*more, "x y   ") == Ids{rows + 1});
  check_kept(*more);
  const FolderTokenizer fewer = folder.made({{"added_tokens_decoder", decoder}}, added, rows + 1);
  CHECK(fewer.tokenizer->vocab_size() == rows + 1);
  CHECK(fewer.left_out == 1);
  const json names = {{"    ", rows}, {"<u>", rows + 1}, {"<v>", rows + 2}, {"<w>", rows + 3}};
  const json special = {{"u_token", "<u>"}, {"additional_special_tokens", {{{"content", "<v>"}}}}};
  write_file(folder.folder.file("special_tokens_map.json"), R"({"extra_special_tokens": ["<w>"]})");
  const auto named = folder.made(special, names).tokenizer;
  REQUIRE(named != nullptr);
  CHECK(tokens_in(*named, "    ") == Ids{rows});  // no file calls it special
  CHECK(tokens_in(*named, "<u><v><w>", SpecialTokens::tokens) == Ids{rows + 1, rows + 2, rows + 3});
  CHECK(tokens_in(*named, "<u><v><w>") == tokens_in(*plain, "<u><v><w>"));
  std::filesystem::remove(folder.folder.file("special_tokens_map.json"));
  const auto spaced = folder.made({{"add_prefix_space", true}}, json::object()).tokenizer;
  CHECK(tokens_in(*spaced, "hello") == tokens_in(*plain, " hello"));
  CHECK(tokens_in(*spaced, " hello") == tokens_in(*plain, " hello"));
  check_kept(*spaced);
  for (const auto& [more_tokens, part] : std::vector<std::pair<json, std::string>>{
           {{{"<far>", rows + 5}}, "the id " + std::to_string(rows + 5) + " to \"<far>\", and the next id is"},
           {{{"<|foo|>", 200}}, "the vocabulary has another token there"},
           {{{"a", rows}}, "token \"a\" is there twice, with ids"},
           {{{std::string("a\0b", 3), rows}}, "added_tokens.json: the token \"a"}}) {
    const FolderTokenizer refused = folder.made(json::object(), more_tokens);
    CAPTURE(refused.refused);
    CHECK(refused.tokenizer == nullptr);
    CHECK(refused.refused.find(part) != std::string::npos);
  }
}

TEST_CASE("folder settings: accents, ideographs and added tokens of a vocab.txt") {
  const ModelFolder folder;
  folder.copy(kind_file("bert_uncased.txt"), kWordPieceFile);
  const auto plain = folder.made({{"do_lower_case", true}, {"strip_accents", nullptr}}, json::object()).tokenizer;
  CHECK(plain->hash() == make_tokenizer({"bert-uncased", kind_file("bert_uncased.txt"), ""})->hash());
  check_kept(*plain);
  const auto rows = static_cast<std::int32_t>(plain->vocab_size()) - 2;  // without [BOS] and [EOS]
  const auto accents = folder.made({{"strip_accents", false}}, json::object()).tokenizer;
  CHECK(accents->name() == "bert-uncased");
  CHECK(tokens_in(*plain, "\u00e9t\u00e9") == tokens_in(*plain, "ete"));
  CHECK(tokens_in(*accents, "\u00e9t\u00e9") != tokens_in(*accents, "ete"));
  CHECK(tokens_in(*accents, "THE") == tokens_in(*plain, "the"));
  check_kept(*accents);
  const auto joined = folder.made({{"tokenize_chinese_chars", false}}, json::object()).tokenizer;
  CHECK(tokens_in(*plain, "\u4e2d\u6587").size() == 2);
  CHECK(tokens_in(*joined, "\u4e2d\u6587").size() == 1);
  const auto more = folder
                        .made({{"additional_special_tokens", {"[NEW]"}}, {"mask_token", "[MASK]"}},
                              {{"[NEW]", rows}, {"[MASK]", plain->special_ids().mask}})
                        .tokenizer;
  REQUIRE(more != nullptr);
  CHECK(tokens_in(*more, "[NEW]", SpecialTokens::tokens) == Ids{rows});
  CHECK(more->special_ids().bos == rows + 1);
  CHECK(more->special_ids().mask == plain->special_ids().mask);
  check_kept(*more);
  CHECK(make_tokenizer({"bert-uncased", folder.folder.file(kWordPieceFile), ""})->hash() == more->hash());
  // Tokens that are special and looked for in the normalized text: by their own flags, and a model's own "*_token".
  const json both = {{std::to_string(rows), {{"content", "[NEW]"}, {"special", true}, {"normalized", true}}}};
  const auto by_flags = folder.made({{"added_tokens_decoder", both}}, json::object()).tokenizer;
  const auto by_name = folder.made({{"image_token", "[NEW]"}}, {{"[NEW]", rows}}).tokenizer;
  for (const auto* special : {&by_flags, &by_name}) {
    CHECK(tokens_in(**special, "[new]", SpecialTokens::tokens) == Ids{rows});
    CHECK(tokens_in(**special, "[new]") == tokens_in(*plain, "[new]"));
    check_kept(**special);
  }
  // A token that ends texts is special, whatever its flags are.
  const json end = {{std::to_string(rows), {{"content", "[NEW]"}}}};
  const auto named = folder.made({{"added_tokens_decoder", end}, {"eos_token", "[NEW]"}}, json::object()).tokenizer;
  CHECK(tokens_in(*named, "[NEW]") == tokens_in(*plain, "[NEW]"));
  CHECK(tokens_in(*named, "[NEW]", SpecialTokens::tokens) == Ids{rows});
}

TEST_CASE("folder settings: added tokens that a normalized text is searched for") {
  const ModelFolder folder;
  const auto decoder = [](std::int32_t rows) {
    const auto token = [](const char* content) { return json{{"content", content}, {"normalized", true}}; };
    return json{{"added_tokens_decoder",
                 {{std::to_string(rows), token("NewWord")}, {std::to_string(rows + 1), token("\u00dcber uns")}}}};
  };
  for (const std::string name : {"bert_uncased.txt", "bert_cased.txt", "bert_lower_accents.json", "unigram_nfc.json"}) {
    CAPTURE(name);
    const bool lowers = name == "bert_uncased.txt" || name == "bert_lower_accents.json";
    const char* const file = name.ends_with(".txt") ? kWordPieceFile : kTokenizerFile;
    for (const char* other : {kWordPieceFile, kTokenizerFile}) std::filesystem::remove(folder.folder.file(other));
    folder.copy(kind_file(name), file);
    const json cased = {{"do_lower_case", lowers}};
    const auto plain = folder.made(cased, json::object()).tokenizer;
    REQUIRE(plain != nullptr);
    const bool completed = name != "unigram_nfc.json" && plain->special_ids().eos == plain->vocab_size() - 1;
    const auto rows = static_cast<std::int32_t>(plain->vocab_size()) - (completed ? 2 : 0);  // [BOS] and [EOS]
    json config = decoder(rows);
    config.update(cased);
    const FolderTokenizer made = folder.made(config, json::object());
    CAPTURE(made.refused);
    REQUIRE(made.tokenizer != nullptr);
    const auto has = [&](const std::string& text, std::int32_t id) {
      const Ids ids = tokens_in(*made.tokenizer, text);
      return std::count(ids.begin(), ids.end(), id) == 1;
    };
    CHECK(has("a NewWord here", rows));
    CHECK(has("xNewWord's", rows));
    CHECK(has("newword", rows) == lowers);
    CHECK(has("NEWWORD", rows) == lowers);
    CHECK(has("\u00dcber uns", rows + 1));
    CHECK(has("U\u0308ber uns", rows + 1) == (name == "bert_uncased.txt" || name == "unigram_nfc.json"));
    CHECK(has("uber UNS", rows + 1) == (name == "bert_uncased.txt"));
    CHECK(tokens_in(*made.tokenizer, "new word") == tokens_in(*plain, "new word"));
    const std::vector<TextPart> parts = {{"\u00e9 Ne"}, {"wWord b"}};
    Ids ids;
    std::vector<std::uint32_t> part_of;
    made.tokenizer->make_encoder()->encode_parts(parts, ids, part_of);
    const auto found = std::find(ids.begin(), ids.end(), rows);
    REQUIRE(found != ids.end());
    CHECK(part_of[static_cast<std::size_t>(found - ids.begin())] == 1);
    check_kept(*made.tokenizer);
  }
}

TEST_CASE("folder settings: a tokenizer.json and tokens that the folder adds") {
  const ModelFolder folder;
  write_file(folder.folder.file(kTokenizerFile), small_tokenizer()->tokenizer_json());
  const auto plain = folder.made(json::object(), json::object()).tokenizer;
  REQUIRE(plain != nullptr);
  const auto rows = static_cast<std::int32_t>(plain->vocab_size());
  const json old = {{"content", plain->eod_text()}, {"special", true}};
  const json decoder = {{std::to_string(plain->eod_id()), old}, {std::to_string(rows), {{"content", "x y"}}}};
  const auto made = folder.made({{"added_tokens_decoder", decoder}}, json::object()).tokenizer;
  REQUIRE(made != nullptr);
  CHECK(tokens_in(*made, "ax y") == Ids{tokens_in(*plain, "a").front(), rows});
  CHECK(made->vocab_size() == rows + 1);
  check_kept(*made);
  // Its flags in tokenizer_config.json are the ones that count.
  write_file(folder.folder.file(kTokenizerFile), made->tokenizer_json());
  const json strips = {{std::to_string(rows), {{"content", "x y"}, {"rstrip", true}}}};
  CHECK(tokens_in(*made, "x y  ").size() > 1);
  CHECK(tokens_in(*folder.made({{"added_tokens_decoder", strips}}, json::object()).tokenizer, "x y  ") == Ids{rows});
  CHECK(folder.made(json::object(), {{"x y", rows}}).tokenizer->hash() == made->hash());
  write_file(folder.folder.file(kTokenizerFile), small_tokenizer()->tokenizer_json());
  const auto again = folder.made({{"added_tokens_decoder", {{std::to_string(plain->eod_id()), old}}}}, json::object());
  CHECK(again.tokenizer->hash() == plain->hash());
  CHECK(again.tokenizer->tokenizer_json() == plain->tokenizer_json());
  const json far = {{std::to_string(rows + 3), {{"content", "x y"}}}};
  const FolderTokenizer gap = folder.made({{"added_tokens_decoder", far}}, json::object());
  CHECK(gap.tokenizer == nullptr);
  CHECK(gap.refused.find(kTokenizerConfigFile) != std::string::npos);
  const FolderTokenizer few = folder.made({{"added_tokens_decoder", decoder}}, json::object(), rows);
  CHECK(few.tokenizer->hash() == plain->hash());
  CHECK(few.left_out == 1);
}

TEST_CASE("folder settings: classes that find words by other rules are refused") {
  const ModelFolder folder;
  folder.copy(kind_file("bert_uncased.txt"), kWordPieceFile);
  folder.copy(kind_file("spm_llama.model"), kSentencePieceFile);
  for (const char* name : {"BertJapaneseTokenizer", "XLMRobertaTokenizerFast"}) {
    const FolderTokenizer refused = folder.made({{"tokenizer_class", name}}, json::object());
    CHECK(refused.tokenizer == nullptr);
    for (const std::string file : {kWordPieceFile, kSentencePieceFile}) {
      CAPTURE(refused.refused);
      CHECK(refused.refused.find(file + ": its class ") != std::string::npos);
    }
  }
  require_error(ErrorKind::data, {"its class XLMRobertaTokenizer finds words"}, [&] {
    make_tokenizer({"bert-uncased", folder.folder.file(kWordPieceFile), ""});
  });
  CHECK(folder.made({{"tokenizer_class", "BertTokenizer"}}, json::object()).tokenizer != nullptr);
  write_file(folder.folder.file("config.json"), R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  CHECK(folder.made(json::object(), json::object()).tokenizer == nullptr);
}

TEST_CASE("folder settings: added tokens of a .model and what is around them") {
  const TemporaryFolder folder, kept;
  std::filesystem::copy_file(kind_file("spm_llama.model"), folder.file(kSentencePieceFile));
  const auto first =
      static_cast<std::int32_t>(make_tokenizer({"sentencepiece", kind_file("spm_llama.model"), ""})->vocab_size());
  const json decoder = {{"2", {{"content", "</s>"}, {"special", false}, {"rstrip", true}}},  // as Phi-3 has it
                        {std::to_string(first), {{"content", "<|user|>"}, {"special", true}, {"rstrip", true}}},
                        {std::to_string(first + 1), {{"content", "<|mask|>"}, {"special", true}, {"lstrip", true}}},
                        {std::to_string(first + 2), {{"content", "foo bar"}, {"special", false}}},
                        {std::to_string(first + 3), {{"content", "the"}, {"special", false}, {"single_word", true}}},
                        {std::to_string(first + 4), {{"content", "\n\n"}, {"special", false}}}};
  write_file(folder.file(kTokenizerConfigFile), json{{"legacy", false}, {"added_tokens_decoder", decoder}}.dump());
  const auto made = hugging_face_tokenizer(folder.path() + "/").tokenizer;
  REQUIRE(made != nullptr);
  const auto check = [first](const Tokenizer& of) {
    const auto ids = [&](const std::string& text, SpecialTokens special = SpecialTokens::tokens) {
      return encode(*of.make_encoder(special), text);
    };
    CHECK(ids("<|user|> \n house") == ids("<|user|>house"));
    CHECK(ids("house  <|mask|>") == ids("house<|mask|>"));
    CHECK(ids("<|user|>") == Ids{first});
    CHECK(ids("<|user|>", SpecialTokens::text).size() > 1);
    CHECK(ids("</s>", SpecialTokens::text).size() > 1);  // no text ends a document
    CHECK(ids("</s> \nhouse") == ids("</s>house"));
    // Tokens that are not special are found in every text, and no space is put in front of them.
    CHECK(ids("foo bar", SpecialTokens::text) == Ids{first + 2});
    CHECK(ids("\n\n", SpecialTokens::text) == Ids{first + 4});
    CHECK(ids("the", SpecialTokens::text) == Ids{first + 3});
    const Ids there = ids("there", SpecialTokens::text);
    CHECK(std::find(there.begin(), there.end(), first + 3) == there.end());
    CHECK(of.decode(Ids{first + 2, first + 3}) == "foo barthe");
  };
  check(*made);
  write_file(kept.file(kSentencePieceFile), std::string(made->files()[0].contents));
  const KeptTokenizer again = find_kept_tokenizer("sentencepiece", made->hash(), kept.path() + "/");
  REQUIRE(again.tokenizer != nullptr);
  check(*again.tokenizer);
  // An export says all of it to transformers as well, and is the same tokenizer here.
  const json config = json::parse(made->tokenizer_config());
  CHECK(config.at("legacy") == false);
  CHECK(config.at("added_tokens_decoder").at(std::to_string(first)).at("rstrip") == true);
  CHECK(config.at("added_tokens_decoder").at(std::to_string(first + 2)).at("special") == false);
  CHECK(config.at("added_tokens_decoder").at("2").at("content") == "</s>");
  CHECK(config.at("eos_token") == "</s>");
  CHECK(config.at("bos_token") == "<s>");
  const json t5 = json::parse(make_tokenizer({"sentencepiece", kind_file("spm_t5.model"), ""})->tokenizer_config());
  CHECK(t5.at("bos_token").is_null());  // <pad> stands in for it here
  CHECK(t5.at("pad_token") == "<pad>");
  write_file(kept.file(kTokenizerConfigFile), config.dump());
  const auto exported = hugging_face_tokenizer(kept.path() + "/").tokenizer;
  REQUIRE(exported != nullptr);
  CHECK(exported->files()[0].contents == made->files()[0].contents);
  CHECK(exported->hash() == made->hash());
}

TEST_CASE("folder settings: add_prefix_space of a .model") {
  const TemporaryFolder folder, kept;
  std::filesystem::copy_file(kind_file("spm_llama.model"), folder.file(kSentencePieceFile));
  const auto made = [&](const char* config) {
    write_file(folder.file(kTokenizerConfigFile), config);
    return hugging_face_tokenizer(folder.path() + "/").tokenizer;
  };
  const auto ids = [](const Tokenizer& of, const std::string& text) { return encode(*of.make_encoder(), text); };
  const auto with = made(R"({"add_prefix_space": true})"), without = made(R"({"add_prefix_space": false})");
  CHECK(with->hash() == made("{}")->hash());
  CHECK(with->tokenizer_config().find("add_prefix_space") == std::string::npos);
  CHECK(json::parse(without->tokenizer_config()).at("add_prefix_space") == false);
  CHECK(without->hash() != with->hash());
  CHECK(ids(*without, " the") == ids(*with, "the"));
  CHECK(ids(*without, "the") != ids(*with, "the"));
  CHECK(without->decode(ids(*without, " the")) == " the");
  CHECK(made(R"({"add_prefix_space": false, "tokenizer_class": "T5Tokenizer", "extra_ids": 0})")->hash() ==
        with->hash());
  write_file(kept.file(kSentencePieceFile), std::string(without->files()[0].contents));
  CHECK(find_kept_tokenizer("sentencepiece", without->hash(), kept.path() + "/").tokenizer != nullptr);
}
