// The files that an export writes for AutoTokenizer of transformers, next to the tokenizer's own.
#include <nlohmann/json.hpp>

#include "checkpoint/hugging_face/checkpoint_tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
using nlohmann::json;

namespace {

/// The tokenizer_config.json of a model of this family.
json exported(const std::string& kind, const std::string& file, const std::string& family) {
  const TemporaryFolder folder;
  ModelConfig model;
  model.family = family;
  model.sequence_length = 64;
  const auto tokenizer = make_tokenizer({kind, MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + file, ""});
  export_tokenizer(*tokenizer, model, {}, /*trained=*/true, nullptr, folder.path());
  return json::parse(contents_of(folder.file(kTokenizerConfigFile)));
}

}  // namespace

TEST_CASE("exported tokenizers return what the model takes") {
  CHECK(exported("bert-uncased", "bert_uncased.txt", "bert").at("model_input_names") ==
        json{"input_ids", "token_type_ids", "attention_mask"});
  for (const char* family : {"gpt", "t5"}) {
    CHECK(exported("bert-uncased", "bert_uncased.txt", family).at("model_input_names") ==
          json{"input_ids", "attention_mask"});
  }
}

TEST_CASE("exported tokenizers: T5's class adds no sentinels to the file's") {
  const json t5 = exported("sentencepiece", "spm_t5.model", "t5");
  CHECK(t5.at("tokenizer_class") == "T5Tokenizer");
  CHECK(t5.at("extra_ids") == 0);
  const json gpt = exported("sentencepiece", "spm_llama.model", "gpt");  // config.json tells its class
  CHECK_FALSE(gpt.contains("tokenizer_class"));
  CHECK_FALSE(gpt.contains("extra_ids"));
  CHECK(gpt.at("legacy") == true);
  CHECK(gpt.at("added_tokens_decoder").at("2").at("content") == "</s>");
}
