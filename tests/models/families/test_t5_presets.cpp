// Presets of T5 have the published numbers of parameters, each owned once on any layout.
#include "config/parse/presets.h"
#include "models/families/each_rank.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("T5: presets have the published numbers of parameters, on any layout") {
  struct Published {
    const char* name;
    std::int64_t vocabulary, parameters;
  };
  // transformers' models of these names; Megatron's with BERT's vocabulary of 30522, [BOS], [EOS] and 100 sentinels.
  for (const auto& [name, vocabulary, parameters] :
       {Published{"t5-small", 32128, 60506624}, Published{"t5-base", 32128, 222903552},
        Published{"t5-large", 32128, 737668096}, Published{"t5-3b", 32128, 2851598336},
        Published{"t5-11b", 32128, 11307321344}, Published{"t5-v1_1-small", 32128, 76961152},
        Published{"google/t5-v1_1-base", 32128, 247577856}, Published{"google/flan-t5-large", 32128, 783150080},
        Published{"t5-v1_1-xl", 32128, 2849757184}, Published{"flan-t5-xxl", 32128, 11135332352},
        Published{"megatron-t5-220m", 30624, 222495744}}) {
    INFO(name);
    REQUIRE(find_preset(name) != nullptr);
    Config config;
    config.model = find_preset(name)->model;
    config.model.vocab_size = vocabulary;
    config.model.query_groups = config.model.attention_heads;
    if (config.model.ffn_hidden_size == 0) config.model.ffn_hidden_size = 4 * config.model.hidden_size;
    CHECK(owned_parameters(config) == parameters);
    config.parallel.tensor = config.parallel.pipeline = 2;
    config.parallel.sequence_parallel = true;
    CHECK(owned_parameters(config) == parameters);
  }
}
