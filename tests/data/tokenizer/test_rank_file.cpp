// Files of ranks: what is kept, and what is wrong in them. Ids are compared in test_tokenizer_kinds.cpp.
#include "data/tokenizer_kinds/rank_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "gpt2_support.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const std::string kFiles[] = {"qwen.tiktoken", "tekken.json"};

std::vector<std::int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.make_encoder()->encode(text, ids);
  return ids;
}

}  // namespace

TEST_CASE("rank files: a tokenizer.json of the same mapping is kept", "[rank_file]") {
  for (const std::string& name : kFiles) {
    INFO(name);
    CHECK(is_rank_file(kind_file(name)));
    const auto tokenizer = make_tokenizer({"gpt2", kind_file(name), ""});
    REQUIRE(tokenizer->files().size() == 1);
    CHECK(tokenizer->files()[0].name == kTokenizerFile);
    const TemporaryFolder kept;
    write_file(kept.file(kTokenizerFile), std::string(tokenizer->files()[0].contents));
    CHECK(find_kept_tokenizer("gpt2", tokenizer->hash(), kept.path() + "/").tokenizer != nullptr);
    const TemporaryFolder model;  // and a model's folder may have such a file alone
    std::filesystem::copy_file(kind_file(name), model.file(name));
    CHECK(hugging_face_tokenizer(model.path() + "/").tokenizer->hash() == tokenizer->hash());
  }
}

TEST_CASE("rank files: tokenizers gives the kept file's tokens their ids", "[rank_file]") {
  const TemporaryFolder folder;
  std::string lines = contents_of(kind_file("qwen.tiktoken"));
  const auto ranks = std::count(lines.begin(), lines.end(), '\n');
  write_file(folder.file("multilingual.tiktoken"), lines + fmt::format("= {}\n", ranks));  // a rank of no token
  for (const std::string& path :
       {kind_file("qwen.tiktoken"), kind_file("tekken.json"), folder.file("multilingual.tiktoken")}) {
    INFO(path);
    const auto tokenizer = make_tokenizer({"gpt2", path, ""});
    const json file = json::parse(tokenizer->tokenizer_json());
    const json& vocab = file.at("model").at("vocab");
    // The rule of tokenizers 0.23 (add_tokens): what the model has keeps its id, others follow it.
    std::size_t next = vocab.size();
    for (const json& token : file.at("added_tokens")) {
      const std::string content = token.at("content");
      CAPTURE(content);
      const std::size_t id = vocab.contains(content) ? vocab.at(content).get<std::size_t>() : next++;
      REQUIRE(id == token.at("id").get<std::size_t>());
    }
    const TemporaryFolder kept;
    write_file(kept.file(kTokenizerFile), tokenizer->tokenizer_json());
    const auto read = find_kept_tokenizer("gpt2", tokenizer->hash(), kept.path() + "/").tokenizer;
    REQUIRE(read != nullptr);
    for (const char* text : {"<unk>", "<s>a</s>", "<|endoftext|>", "[INST]"}) {  // a text's, not the special tokens
      CHECK(ids_of(*read, text) == ids_of(*tokenizer, text));
    }
  }
}

TEST_CASE("rank files: a file of ranks is told by its contents, not by its name", "[rank_file]") {
  const TemporaryFolder folder;
  const std::string before = folder.file("tekken."), other = folder.file("mine.json");
  const auto small = small_tokenizer();
  write_file(before + kTokenizerFile, small->tokenizer_json());
  CHECK(find_kept_tokenizer("gpt2", small->hash(), before).tokenizer != nullptr);
  std::filesystem::copy_file(kind_file("tekken.json"), other);
  CHECK(choice_of_file(other, "").name == "gpt2");
  CHECK(make_tokenizer(choice_of_file(other, ""))->hash() ==
        make_tokenizer({"gpt2", kind_file("tekken.json"), ""})->hash());
  const std::string whole = contents_of(other);
  write_file(other, whole.substr(0, whole.size() / 2));
  require_error(ErrorKind::data, {other, "no tekken.json"}, [&] { make_tokenizer({"gpt2", other, ""}); });
}

TEST_CASE("rank files: special tokens beyond the model's rows are left out", "[rank_file]") {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kind_file("qwen.tiktoken"), folder.file("qwen.tiktoken"));
  const auto all = hugging_face_tokenizer(folder.path() + "/");
  const std::int64_t size = all.tokenizer->vocab_size();
  const auto fewer = hugging_face_tokenizer(folder.path() + "/", size - 3);
  REQUIRE(fewer.tokenizer != nullptr);
  CHECK(fewer.tokenizer->vocab_size() == size - 3);
  CHECK(fewer.left_out == 3);
}

TEST_CASE("rank files: special tokens of tokenizer.model are the configuration's", "[rank_file]") {
  const TemporaryFolder folder;
  const std::string path = folder.file(kSentencePieceFile);
  std::filesystem::copy_file(kind_file("qwen.tiktoken"), path);
  CHECK(is_rank_file(path));
  require_error(ErrorKind::data, {path, "its special tokens are in no file"}, [&] { read_rank_file(path); });
  const std::int64_t ranks = make_tokenizer({"gpt2", kind_file("qwen.tiktoken"), ""})->vocab_size() - 208;
  json decoder = {{std::to_string(ranks + 2), {{"content", "<|endoftext|>"}, {"special", true}}}};
  write_file(folder.file(kTokenizerConfigFile), json{{"added_tokens_decoder", decoder}}.dump());
  const auto tokenizer = hugging_face_tokenizer(folder.path() + "/").tokenizer;
  REQUIRE(tokenizer != nullptr);
  CHECK(tokenizer->name() == "gpt2");
  CHECK(tokenizer->eod_id() == ranks + 2);
  CHECK(tokenizer->vocab_size() == ranks + 3);  // ids without a token are unused ones
  require_error(ErrorKind::configuration, {"a file of ranks", "--tokenizer gpt2"}, [&] {
    make_tokenizer({"sentencepiece", path, ""});
  });
}

TEST_CASE("rank files: what is wrong in them", "[rank_file][fault]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name, const std::string& contents, const std::string& part) {
    write_file(folder.file(name), contents);
    require_error(ErrorKind::data, {folder.file(name), part}, [&] { read_rank_file(folder.file(name)); });
  };
  const std::string good = contents_of(kind_file("qwen.tiktoken"));
  refused("other.tiktoken", good, "the split pattern and special tokens of other.tiktoken are not known");
  refused("qwen.tiktoken", good + "IQ== 0\n", "is there twice");
  refused("qwen.tiktoken", good + "IQ=\n", "expected \"base64 rank\"");
  refused("qwen.tiktoken", good + "IQ= 9\n", "is no base64");
  refused("qwen.tiktoken", good + "IQ== x\n", "expected \"base64 rank\"");
  refused("qwen.tiktoken", "IQ== 0\n", "is no token, so that not every text");
  json tekken = json::parse(contents_of(kind_file("tekken.json")));
  const auto changed = [&](const char* pointer, const json& value) {
    json copy = tekken;
    copy[json::json_pointer(pointer)] = value;
    return copy.dump();
  };
  refused("tekken.json", changed("/config/pattern", "x+"), "its split pattern \"x+\" is not known");
  refused("tekken.json", changed("/config/default_num_special_tokens", 0), "with 0 special ones");
  refused("tekken.json", changed("/vocab/7/token_bytes", "?"), "is no base64");
  refused("tekken.json", changed("/vocab", 3), "no tekken.json");
  refused("tekken.json", changed("/special_tokens", json::array({{{"rank", 5}, {"token_str", "x"}}})),
          "a special token of rank 5");
  refused("tekken.json", changed("/special_tokens", json::array({{{"rank", 0}, {"token_str", "\u00E9"}}})),
          "its special token \"\u00E9\" is written as");
  refused("tekken.json", changed("/vocab/7/rank", 1e30), "\"rank\" is 1e+30, where a whole number is right");
  refused("tekken.json", changed("/vocab/7/rank", -1), "\"rank\" is -1");
  refused("tekken.json", changed("/config/default_vocab_size", 1e30), "\"default_vocab_size\" is 1e+30");
  refused("tekken.json", changed("/config/default_num_special_tokens", 4294967297), "with 4294967297 special ones");
  refused("tekken.json", "{", "no tekken.json");
  // Tokens of 4096 bytes, whose cuts would take minutes.
  std::string lines = good, many;
  for (int i = 0; i < 1300; ++i) many += "YWFh";
  for (int i = 0; i < 100; ++i) lines += fmt::format("{}{:04} {}\n", many, i, 2000 + i);
  refused("qwen.tiktoken", lines, "too many long tokens");
}
