// Files that exports write for Hugging Face's AutoTokenizer: scripts/checks/check_tokenizer_export.py asks the real
// reader.
#include "data/tokenizer/tokenizer_export.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "data/tokenizer/unigram_vocabulary.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "data/tokenizer_kinds/word_piece_vocabulary.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

std::unique_ptr<Tokenizer> read_back(const Tokenizer& tokenizer, const TemporaryFolder& folder) {
  write_file(folder.file(kTokenizerFile), tokenizer.tokenizer_json());
  return make_tokenizer({"gpt2", folder.file(kTokenizerFile), ""});
}

}  // namespace

TEST_CASE("tokenizer export: two files become one with the same mapping", "[tokenizer_export]") {
  const TemporaryFolder folder;
  const auto tokenizer = small_tokenizer();
  CHECK(read_back(*tokenizer, folder)->hash() == tokenizer->hash());
}

TEST_CASE("tokenizer export: a tokenizer.json stays as it is", "[tokenizer_export]") {
  for (const std::string kind : {"llama3", "qwen2", "starcoder", "gpt_neox", "flags"}) {
    const std::string path = MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + kind + ".json";
    CHECK((make_tokenizer({"gpt2", path, ""})->tokenizer_json() == contents_of(path)));
  }
}

TEST_CASE("tokenizer export: bytes become a BPE with the same ids", "[tokenizer_export]") {
  const TemporaryFolder folder;
  const auto bytes = make_tokenizer({});
  const auto exported = read_back(*bytes, folder);
  CHECK(exported->vocab_size() == 257);
  CHECK(exported->eod_id() == bytes->eod_id());
  const auto encoder = bytes->make_encoder(), encoder_of_exported = exported->make_encoder();
  Draw draw(9);
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_utf8(draw, 50);
    const auto ids = encode(*encoder, text);
    CHECK(encode(*encoder_of_exported, text) == ids);
    CHECK((exported->decode(ids) == text));
  }
}

TEST_CASE("tokenizer export: the configuration names the end of documents", "[tokenizer_export]") {
  const auto config = [](const Tokenizer& tokenizer) { return json::parse(write_tokenizer_config(tokenizer, 512)); };
  const json bytes = config(*make_tokenizer({}));
  CHECK(bytes.at("tokenizer_class") == "PreTrainedTokenizerFast");
  CHECK(bytes.at("eos_token") == "<|endoftext|>");
  CHECK(bytes.at("model_max_length") == 512);
  CHECK(bytes.at("clean_up_tokenization_spaces") == false);
  const std::string llama = MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/llama3.json";
  CHECK(config(*make_tokenizer({"gpt2", llama, ""})).at("eos_token") == "<|end_of_text|>");
}

TEST_CASE("tokenizer export: time is linear in the vocabulary", "[tokenizer_export]") {
  WordPieceVocabulary words = read_word_piece_text(MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/bert_cased.txt", false, 0);
  while (words.tokens.size() < 250'000) words.tokens.push_back("w" + std::to_string(words.tokens.size()));
  const TemporaryFolder folder;
  const std::clock_t start = std::clock();
  write_file(folder.file(kTokenizerFile), write_word_piece_json(words));
  const auto more = make_tokenizer({"bert-cased", folder.file(kTokenizerFile), "", 3});
  CHECK(more->special_ids().sentinels == 3);
  const json framed = json::parse(trained_tokenizer_json(*more, TextFrame::none));
  CHECK(framed.at("model").at("vocab").size() == 250'000);
  CHECK(framed.at("post_processor").is_null());
  CHECK(std::clock() - start < 20 * CLOCKS_PER_SEC);  // quadratic is minutes
}

TEST_CASE("tokenizer export: a text is framed as training framed it", "[tokenizer_export]") {
  const auto kind = [](const std::string& name, const std::string& file) {
    return make_tokenizer({name, MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + file, ""});
  };
  const auto post = [](const Tokenizer& tokenizer, TextFrame frame) {
    json parts = json::parse(trained_tokenizer_json(tokenizer, frame));
    CHECK(parts.contains("model"));
    return parts.at("post_processor");
  };
  const TemporaryFolder folder;
  write_file(folder.file("t5.json"), write_unigram_json({{"a", -1}, {"b", -2}}, 2));
  const auto t5 = make_tokenizer({"unigram", folder.file("t5.json"), ""});
  CHECK(post(*t5, TextFrame::none).is_null());
  CHECK(post(*t5, TextFrame::nothing_after).is_null());

  const auto bert = kind("bert-cased", "bert_cased.txt");
  CHECK(trained_tokenizer_json(*bert, TextFrame::cls_sep) == bert->tokenizer_json());
  CHECK(post(*bert, TextFrame::none).is_null());
  CHECK(post(*bert, TextFrame::nothing_after).is_null());

  // A file that adds nothing, of a model that was trained with [CLS] and [SEP].
  json bare = json::parse(bert->tokenizer_json());
  bare["post_processor"] = nullptr;
  write_file(folder.file("bare.json"), bare.dump());
  const auto without = make_tokenizer({"bert-cased", folder.file("bare.json"), ""});
  CHECK(post(*without, TextFrame::cls_sep) == json::parse(bert->tokenizer_json()).at("post_processor"));
  CHECK(trained_tokenizer_json(*without, TextFrame::none) == without->tokenizer_json());

  // A decoder's token in front of a text stays, and so does a step that adds none.
  json llama = json::parse(contents_of(MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/llama3.json"));
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  const json begin = json::parse(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>",
    "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}})");
  llama["post_processor"] = {{"type", "Sequence"}, {"processors", {byte_level, begin}}};
  write_file(folder.file("begin.json"), llama.dump());
  const auto decoder = make_tokenizer({"gpt2", folder.file("begin.json"), ""});
  CHECK(trained_tokenizer_json(*decoder, TextFrame::nothing_after) == decoder->tokenizer_json());
  CHECK(post(*decoder, TextFrame::none) == byte_level);
  const auto bytes = make_tokenizer({});
  CHECK(trained_tokenizer_json(*bytes, TextFrame::none) == bytes->tokenizer_json());
}
