// Presets: sizes of published models that a file or an option names.
#include <set>

#include "config/parse/presets.h"
#include "config/schema/print.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const std::string kRest = "[train]\nsteps = 1\nglobal_batch_size = 1\n[data]\ntrain = \"d\"\n";

}  // namespace

TEST_CASE("presets give sizes that explicit keys override", "[config]") {
  const Config c = parse_config_text(kRest + "[model]\nsequence_length = 512\npreset = \"gpt2-large\"\n", "f.toml",
                                     {"model.layers=4"});
  CHECK(c.model.layers == 4);
  CHECK(c.model.hidden_size == 1280);
  CHECK(c.model.attention_heads == 20);
  CHECK(c.model.sequence_length == 512);
  CHECK(c.model.max_position_embeddings == 1024);
  CHECK(c.model.vocab_size == 0);
  const Config llama = parse_config_text(kRest, "f.toml", {"model.preset=llama3-8b", "model.query_groups=4"});
  CHECK(llama.model.activation == "swiglu");
  CHECK(llama.model.query_groups == 4);
  CHECK(llama.model.rotary_base == 500000);
  const Config alibi = parse_config_text(kRest, "f.toml", {"model.preset=llama3-8b", "model.position_embedding=alibi"});
  CHECK(alibi.model.rotary_base == ModelConfig().rotary_base);
  const std::string wrong = error_of([&] { parse_config_text(kRest + "[model]\npreset = \"gpt5\"\n", "f.toml"); });
  INFO(wrong);
  CHECK(lines(wrong) == 1);
}

TEST_CASE("presets: each is read and resolves, and no two share a name", "[config]") {
  std::set<std::string> names;
  CHECK(model_presets().size() == 51);
  for (const ModelPreset& preset : model_presets()) {
    INFO(preset.name);
    CHECK_FALSE(preset.note.empty());
    for (const std::string& name : preset.plain_names) {
      INFO(name);
      CHECK((!name.empty() && names.insert(name).second));
    }
    Config config = parse_config_text(kRest, "f.toml", {"model.preset=" + preset.name});
    ModelConfig expected = preset.model;
    expected.preset = preset.name;
    CHECK(config.model == expected);
    CHECK(config.model.max_position_embeddings == config.model.sequence_length);
    CHECK(error_of([&] { resolve(config, 1, &kData); }).empty());
    CHECK(config.model.vocab_size == kData.vocab_size);
  }
}

TEST_CASE("a preset of the command line replaces the file's sizes", "[config]") {
  const std::string file = small_file().replace(0, 8, "[model]\nhidden_dropout = 0.25\nactivation = \"gelu\"\n");
  std::vector<std::string> notes;
  const Config xl = parse_config_text(file, "f.toml", {"model.preset=gpt2-xl", "model.layers=6"}, &notes);
  CHECK(xl.model.layers == 6);
  CHECK(xl.model.hidden_size == 1600);
  CHECK(xl.model.attention_heads == 25);
  CHECK(xl.model.sequence_length == 1024);
  CHECK(xl.model.vocab_size == 100);
  CHECK(xl.model.hidden_dropout == 0.25);
  REQUIRE(notes.size() == 1);
  CHECK(contains(
      notes[0],
      "--set model.preset=gpt2-xl replaces these keys of f.toml: model.attention_heads = 12, model.hidden_size = "
      "48, model.sequence_length = 16; to keep one"));
  CHECK(parse_config_text(file, "f.toml", {"train.steps=3"}, &notes).model.layers == 12);
  CHECK(notes.empty());
  // Keys that it replaces must be well-formed all the same.
  const std::string wrong = small_file().replace(small_file().find("48"), 2, "\"x\"");
  CHECK(contains(error_of([&] { parse_config_text(wrong, "f.toml", {"model.preset=gpt2-xl"}); }),
                 "f.toml:3:1: error: model.hidden_size: expected integer"));
}

TEST_CASE("presets answer to the names in use", "[config]") {
  const std::pair<const char*, const char*> names[] = {{"gpt2", "gpt2-124m"},
                                                       {"openai-community/gpt2-xl", "gpt2-xl"},
                                                       {"GPT2_Medium", "gpt2-medium"},
                                                       {"llama-3-8b", "llama3-8b"},
                                                       {"meta-llama/Meta-Llama-3-70B", "llama3-70b"},
                                                       {"meta-llama/Llama-2-7b-hf", "llama2-7b"},
                                                       {"gpt3-1.3b", "gpt3-1.3b"},
                                                       {"google-bert/bert-base-uncased", "bert-base"},
                                                       {"bert-large-uncased", "bert-large"},
                                                       {"gpt3-13b", "gpt3-13b"}};
  for (const auto& [theirs, ours] : names) {
    INFO(theirs);
    CHECK(parse_small({std::string("model.preset=") + theirs}).model.preset == ours);
  }
  for (const ModelPreset& preset : model_presets()) {
    INFO(preset.name);
    CHECK(find_preset(preset.name) == &preset);
  }
  CHECK(contains(set_error("model.preset=meta-llama/Llama-3.1-8B-Instruct"), "is no preset; inputs/README.md"));
  const Config experts = parse_small({"model.preset=mistralai/Mixtral-8x7B-v0.1", "moe.top_k=3"});
  CHECK(experts.model.preset == "mixtral-8x7b");
  CHECK(experts.model.moe.experts == 8);
  CHECK(experts.model.moe.top_k == 3);
  CHECK(experts.model.moe.drop == "none");
  CHECK(experts.model.moe.balance_coefficient == 0.02);
  CHECK(contains(set_error("model.preset=meta-llama/Llama-3.1-8B"), "did you mean \"llama3-8b\"?"));
}
