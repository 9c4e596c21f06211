// What exports write for Hugging Face's AutoTokenizer: their own reader is asked by scripts/check_tokenizer_export.py.
#include "tokenizer/tokenizer_export.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "gpt2_support.h"
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
