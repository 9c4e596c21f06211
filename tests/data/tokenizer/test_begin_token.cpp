// The token that begins texts, by the files of a Hugging Face model's folder.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

/// A folder with a golden tokenizer and, unless it is empty, this tokenizer_config.json.
class Folder {
 public:
  Folder(const std::string& golden, const std::string& name, const std::string& config) {
    std::filesystem::copy_file(MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + golden, folder_.file(name));
    if (!config.empty()) write_file(folder_.file(kTokenizerConfigFile), config);
  }
  /// "ID yes" or "ID no", whether it is put in front of texts; "none".
  std::string begin(bool usual) const {
    const std::string path = folder_.path() + "/";
    const std::unique_ptr<Tokenizer> tokenizer = hugging_face_tokenizer(path).tokenizer;
    REQUIRE(tokenizer != nullptr);
    const std::optional<BeginToken> token = begin_token_of_folder(path, *tokenizer, usual);
    return token ? std::to_string(token->id) + (token->by_default ? " yes" : " no") : "none";
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("begin token: a tokenizer.model alone follows the model's family", "[tokenizer]") {
  const auto begin = [](const std::string& config, bool usual) {
    return Folder("spm_llama.model", "tokenizer.model", config).begin(usual);
  };
  CHECK(begin("", true) == "1 yes");
  CHECK(begin("", false) == "1 no");
  CHECK(begin(R"({"add_bos_token": false, "tokenizer_class": "LlamaTokenizer"})", true) == "1 no");
  CHECK(begin(R"({"add_bos_token": true, "bos_token": "</s>"})", false) == "2 yes");
  CHECK(begin(R"({"bos_token": {"content": "<s>"}, "tokenizer_class": "LlamaTokenizer"})", false) == "1 yes");
  CHECK(begin(R"({"tokenizer_class": "T5Tokenizer"})", true) == "1 no");
}

TEST_CASE("begin token: a tokenizer.json's post-processor decides", "[tokenizer]") {
  const auto begin = [](const std::string& golden, const std::string& config) {
    return Folder(golden, kTokenizerFile, config).begin(true);
  };
  CHECK(begin("llama3.json", "") == "674 yes");
  CHECK(begin("llama3.json", R"({"add_bos_token": false})") == "674 no");
  CHECK(begin("qwen2.json", "") == "none");
  CHECK(begin("qwen2.json", R"({"bos_token": "<|im_start|>"})") == "649 no");
}
