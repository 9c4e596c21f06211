// A context and its target as one text, also for vocabularies that put a space in front of a text.
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/catch.h"
#include "training/datasets/evaluation_tasks.h"

using namespace megatron;

namespace {

using Ids = std::vector<std::int32_t>;

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& name, const std::string& file) {
  return make_tokenizer({name, MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + file, ""});
}

Ids encoded(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.make_encoder()->encode(text, ids);
  return ids;
}

}  // namespace

TEST_CASE("evaluation pairs: ids of the whole text, cut where the target begins") {
  for (const auto& [name, file] :
       {std::pair("sentencepiece", "spm_llama.model"), std::pair("sentencepiece", "spm_t5.model"),
        std::pair("gpt2", "llama3.json"), std::pair("gpt2", "flags.json"), std::pair("unigram", "unigram_xlm.json"),
        std::pair("bert-cased", "bert_cased.txt")}) {
    INFO(file);
    const auto tokenizer = tokenizer_of(name, file);
    const auto encoder = tokenizer->make_encoder();
    const TaskInput::Pair pair = encode_pair(*encoder, "for while", " return two");
    CHECK(pair.ids == encoded(*tokenizer, "for while return two"));
    CHECK(Ids(pair.ids.begin(), pair.ids.begin() + static_cast<std::ptrdiff_t>(pair.context)) ==
          encoded(*tokenizer, "for while"));
    const TaskInput::Pair alone = encode_pair(*encoder, "", " return two");
    CHECK(alone.ids == encoded(*tokenizer, " return two"));
    CHECK(alone.context == 0);
  }
}

TEST_CASE("evaluation pairs: one token for both is the target's") {
  const auto tokenizer = tokenizer_of("gpt2", "llama3.json");
  const TaskInput::Pair pair = encode_pair(*tokenizer->make_encoder(), "for ", "return");
  CHECK(pair.ids == encoded(*tokenizer, "for return"));
  CHECK(pair.context == encoded(*tokenizer, "for").size());
}
