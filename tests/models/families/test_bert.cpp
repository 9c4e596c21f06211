// BERT on paper: published numbers of parameters, the names that seed its weights, which rank holds and sums what, what
// its stages read, and its operations per token.
#include <algorithm>
#include <map>

#include "config/parse/presets.h"
#include "models/families/each_rank.h"
#include "support/catch.h"
#include "support/model_sizes.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config tiny_bert() {
  Config config;
  config.model = model_of({.layers = 4, .hidden = 16, .heads = 4, .ffn = 24, .sequence = 8});
  config.model.family = "bert";
  config.train.micro_batch_size = 3;
  return config;
}

Config preset(const std::string& name, std::int64_t vocabulary) {
  Config config;
  config.model = find_preset(name)->model;
  config.model.vocab_size = vocabulary;
  config.model.query_groups = config.model.attention_heads;
  config.model.ffn_hidden_size = 4 * config.model.hidden_size;
  return config;
}

}  // namespace

TEST_CASE("BERT: presets have the published numbers of parameters, on any layout") {
  // Megatron's log of BERT-large in Chinese: 21128 tokens, [BOS] and [EOS], padded to 21248.
  struct Published {
    const char* name;
    std::int64_t vocabulary, parameters;
  };
  for (const auto& [name, vocabulary, parameters] :
       {Published{"megatron-bert-345m", 21130, 326720258}, Published{"bert-large", 21130, 326720258},
        Published{"bert-base-uncased", 30592, 30592 * 769 + 86635010}}) {  // transformers' BertForPreTraining
    INFO(name);
    Config config = preset(name, vocabulary);
    CHECK(owned_parameters(config) == parameters);
    config.parallel.tensor = 4;
    config.parallel.pipeline = 3;
    config.parallel.sequence_parallel = true;
    CHECK(owned_parameters(config) == parameters);
  }
}

TEST_CASE("BERT: parameters in order of declaration with pre-norm and post-norm") {
  std::vector<std::string> names;
  const auto ends_of = [&](const Config& config) {
    names.clear();
    for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
      for (const Parameter& parameter : store.all()) {
        if (!parameter.name.starts_with("layers")) names.push_back(parameter.name);
      }
    });
    return names;
  };
  using Names = std::vector<std::string>;
  const Names heads = {"head.dense.weight", "head.dense.bias", "head.norm.weight",  "head.norm.bias", "head.bias",
                       "pooler.weight",     "pooler.bias",     "order_head.weight", "order_head.bias"};
  Names pre = {"embedding.word.weight", "embedding.position.weight", "embedding.type.weight", "final_norm.weight",
               "final_norm.bias"};
  Names post = {"embedding.word.weight", "embedding.position.weight", "embedding.type.weight", "embedding.norm.weight",
                "embedding.norm.bias"};
  pre.insert(pre.end(), heads.begin(), heads.end());
  post.insert(post.end(), heads.begin(), heads.end());
  Config config = tiny_bert();
  CHECK(ends_of(config) == pre);
  config.model.norm_position = "post";
  config.model.embedding_norm = true;
  CHECK(ends_of(config) == post);
}

TEST_CASE("BERT: under sequence parallelism only the pooler is whole on each rank") {
  Config config = tiny_bert();
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.parallel.sequence_parallel = GENERATE(false, true);
  const Placement copies = config.parallel.sequence_parallel ? Placement::partial : Placement::replica;
  std::map<std::string, int> owners;
  for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates& at) {
    for (const Parameter& parameter : store.all()) {
      INFO(parameter.name << " on tensor rank " << at.tensor << ", stage " << at.pipeline);
      const bool whole = parameter.box.extent == parameter.global_shape;
      const bool of_first_rows = parameter.name.starts_with("pooler") || parameter.name.starts_with("order_head");
      CHECK(parameter.tensor == (!whole ? Placement::split : of_first_rows ? Placement::replica : copies));
      CHECK(parameter.decays() == (parameter.global_shape.rank() == 2));
      owners[parameter.name] += whole && parameter.owner ? 1 : 0;
    }
  });
  CHECK(owners.at("pooler.weight") == 1);
  CHECK(owners.at("head.dense.weight") == 1);
  CHECK(owners.at("embedding.type.weight") == 1);
}

TEST_CASE("BERT: a stage reads what its embedding, attention or head needs") {
  Config config = tiny_bert();
  config.parallel.pipeline = 4;
  std::vector<std::string> read;
  for_each_rank(config, [&](const ParameterStore&, const Stages& chunks, const GridCoordinates&) {
    std::string& names = read.emplace_back();
    for (const BatchField& field : batch_layout(config).fields) {
      if (field.source == FieldSource::sample && chunks[0]->reads(field)) names += std::string(field.name) + ", ";
    }
  });
  CHECK(read == std::vector<std::string>{"tokens, types, lengths, ", "lengths, ", "lengths, ",
                                         "lengths, targets, loss weights, labels, "});
  const std::size_t numbers = 8 * 3 * 4;  // bytes of a [s, b] field
  CHECK(batch_layout(config).bytes(5) == 5 * (4 * numbers + 2 * 3 * 4) + numbers + 8 * 4);
}

TEST_CASE("BERT: operations per token count the attention square and both heads") {
  const Config config = tiny_bert();
  const double layers = 4, h = 16, f = 24, s = 8, vocab = 64;
  const double multiplying = layers * (4 * h * h + 2 * h * f) + h * vocab + h * h + (h * h + 2 * h) / s;
  CHECK(flops_per_token(config.model).model == Approx(6 * multiplying + layers * 12 * s * h));
  // Recomputation repeats all but the last projection, and that too where a norm reads it.
  const double layer = 2 * (4 * h * h + 2 * h * f) + 4 * s * h;
  const auto repeated = [](const ModelConfig& model) {
    return flops_per_token(model, 3).hardware - flops_per_token(model).hardware;
  };
  CHECK(repeated(config.model) == Approx(3 * (layer - 2 * h * f)));
  Config post = config;
  post.model.norm_position = "post";
  CHECK(repeated(post.model) == Approx(3 * layer));
  Config decoder = config;
  decoder.model.family = "gpt";
  CHECK(flops_per_token(config.model).model - flops_per_token(decoder.model).model ==
        Approx(6 * (h * h + (h * h + 2 * h) / s) + layers * 6 * s * h));
}
