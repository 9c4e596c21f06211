// T5 on paper: published numbers of parameters, the names that seed its weights, which stages hold copies of what, what
// travels between stages, what each of them reads, and its operations per token.
#include <map>

#include "models/families/each_rank.h"
#include "support/catch.h"
#include "support/model_sizes.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config tiny_t5(const char* positions) {
  Config config;
  config.model = model_of({.layers = 3, .hidden = 16, .heads = 4, .ffn = 24, .sequence = 8});
  config.model.family = "t5";
  config.model.decoder_layers = 2;
  config.model.decoder_sequence_length = 4;
  config.model.position_embedding = positions;
  config.model.relative_buckets = 8;
  config.train.micro_batch_size = 3;
  return config;
}

/// A chunk in words: "m" for the decoder's stream, "e" for the encoder's.
std::string in_words(std::span<const Link> links) {
  std::string words;
  for (const Link& link : links) words += link.stream == Stream::main ? "m" : "e";
  return words;
}

}  // namespace

TEST_CASE("T5: Megatron's base model has the published parameter count") {
  Config config;  // 30522 pieces, [BOS], [EOS] and 100 sentinels
  config.model = model_of({.layers = 12, .hidden = 768, .heads = 12, .ffn = 3072, .sequence = 512});
  config.model.vocab_size = 30624;
  config.model.vocab_multiple = 128;
  config.model.family = "t5";
  config.model.decoder_layers = 12;
  config.model.decoder_sequence_length = 128;
  config.model.head_bias = true;
  CHECK(owned_parameters(config) == 222495744);
  config.parallel.tensor = 4;
  config.parallel.pipeline = 3;
  config.parallel.sequence_parallel = true;
  CHECK(owned_parameters(config) == 222495744);
  config.parallel.pipeline = 2;
  config.parallel.virtual_stages = 3;
  CHECK(owned_parameters(config) == 222495744);
}

TEST_CASE("T5: parameters by name, in the order of declaration") {
  const auto names_of = [](const Config& config) {
    std::vector<std::string> names;
    for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
      for (const Parameter& parameter : store.all()) {
        const bool later = parameter.name.find("layers.") != std::string::npos &&
                           parameter.name.find("layers.0.") == std::string::npos;
        if (!later) names.push_back(parameter.name);
      }
    });
    return names;
  };
  Config config = tiny_t5("relative");
  config.model.bias = false;
  config.model.normalization = "rmsnorm";
  CHECK(names_of(config) == std::vector<std::string>{"embedding.word.weight",
                                                     "relative.encoder.weight",
                                                     "relative.decoder.weight",
                                                     "encoder.layers.0.attention_norm.weight",
                                                     "encoder.layers.0.attention.query.weight",
                                                     "encoder.layers.0.attention.key.weight",
                                                     "encoder.layers.0.attention.value.weight",
                                                     "encoder.layers.0.attention.output.weight",
                                                     "encoder.layers.0.mlp_norm.weight",
                                                     "encoder.layers.0.mlp.up.weight",
                                                     "encoder.layers.0.mlp.down.weight",
                                                     "encoder.final_norm.weight",
                                                     "decoder.layers.0.attention_norm.weight",
                                                     "decoder.layers.0.attention.query.weight",
                                                     "decoder.layers.0.attention.key.weight",
                                                     "decoder.layers.0.attention.value.weight",
                                                     "decoder.layers.0.attention.output.weight",
                                                     "decoder.layers.0.cross_attention_norm.weight",
                                                     "decoder.layers.0.cross_attention.query.weight",
                                                     "decoder.layers.0.cross_attention.key.weight",
                                                     "decoder.layers.0.cross_attention.value.weight",
                                                     "decoder.layers.0.cross_attention.output.weight",
                                                     "decoder.layers.0.mlp_norm.weight",
                                                     "decoder.layers.0.mlp.up.weight",
                                                     "decoder.layers.0.mlp.down.weight",
                                                     "final_norm.weight"});
  config = tiny_t5("learned");
  config.model.tie_embeddings = false;
  config.model.head_bias = true;
  std::vector<std::string> outside = names_of(config);
  std::erase_if(outside, [](const std::string& name) { return name.find("layers.") != std::string::npos; });
  CHECK(outside == std::vector<std::string>{"embedding.word.weight", "embedding.position.weight",
                                            "encoder.final_norm.weight", "encoder.final_norm.bias", "head.weight",
                                            "final_norm.weight", "final_norm.bias", "head.bias"});
}

TEST_CASE("T5: what travels between stages follows from where the encoder ends") {
  struct Cut {
    std::vector<std::int64_t> layers;
    std::vector<std::string> links;  // "received > sent" by stage
  };
  for (const Cut& cut : {Cut{{3, 1, 1}, {" > e", "e > me", "me > "}}, Cut{{2, 2, 1}, {" > e", "e > me", "me > "}},
                         Cut{{1, 2, 2}, {" > e", "e > e", "e > "}}, Cut{{4, 1}, {" > me", "me > "}},
                         Cut{{1, 4}, {" > e", "e > "}}, Cut{{5}, {" > "}}}) {
    Config config = tiny_t5("learned");
    config.parallel.pipeline = static_cast<std::int64_t>(cut.layers.size());
    config.parallel.layers_per_stage = cut.layers;
    std::vector<std::string> links;
    for_each_rank(config, [&](const ParameterStore&, const Stages& chunks, const GridCoordinates&) {
      links.push_back(in_words(chunks[0]->receives()) + " > " + in_words(chunks[0]->sends()));
    });
    CHECK(links == cut.links);
  }
}

TEST_CASE("T5: tables that several stages use are tied, and one stage counts each") {
  using Ties = std::vector<std::vector<int>>;
  const auto ties_of = [](Config config, std::vector<std::int64_t> layers) {
    config.parallel.pipeline = static_cast<std::int64_t>(layers.size());
    config.parallel.layers_per_stage = std::move(layers);
    std::map<std::string, int> owners;
    for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
      for (const Parameter& parameter : store.all()) owners[parameter.name] += parameter.owner ? 1 : 0;
    });
    for (const auto& [name, count] : owners) {
      INFO(name);
      CHECK(count == 1);
    }
    return family_of(config.model).ties(config);
  };
  const Config learned = tiny_t5("learned"), relative = tiny_t5("relative");
  CHECK(ties_of(learned, {2, 1, 1, 1}) == Ties{{0, 2, 3}, {0, 2}});  // words, positions
  CHECK(ties_of(learned, {3, 2}) == Ties{{0, 1}, {0, 1}});
  CHECK(ties_of(learned, {4, 1}) == Ties{{0, 1}});
  CHECK(ties_of(learned, {5}) == Ties{});
  CHECK(ties_of(relative, {2, 2, 1}) == Ties{{0, 1, 2}, {0, 1}, {1, 2}});  // words, the encoder's and decoder's biases
  Config separate = relative;
  separate.model.tie_embeddings = false;
  CHECK(ties_of(separate, {1, 1, 1, 1, 1}) == Ties{{0, 3}, {0, 1, 2}, {3, 4}});
}

TEST_CASE("T5: a stage reads what its layers need") {
  Config config = tiny_t5("learned");
  config.parallel.pipeline = 4;
  config.parallel.layers_per_stage = {2, 1, 1, 1};
  std::vector<std::string> read;
  for_each_rank(config, [&](const ParameterStore&, const Stages& chunks, const GridCoordinates&) {
    std::string& names = read.emplace_back();
    for (const BatchField& field : batch_layout(config).fields) {
      if (field.source == FieldSource::sample && chunks[0]->reads(field)) names += std::string(field.name) + ", ";
    }
  });
  CHECK(read == std::vector<std::string>{"encoder tokens, encoder lengths, ", "encoder lengths, ",
                                         "tokens, encoder lengths, ", "encoder lengths, targets, loss weights, "});
}

TEST_CASE("T5: operations per token of the encoder are those of the whole sample") {
  const Config config = tiny_t5("relative");
  const double h = 16, f = 24, s = 8, d = 4, vocab = 64;
  const double layer = 4 * h * h + 2 * h * f;
  const double encoder = 2 * s * layer + 4 * h * s * s;
  const double decoder = 2 * d * (layer + 2 * h * h) + 2 * s * 2 * h * h + 4 * h * d * d / 2 + 4 * h * d * s;
  CHECK(flops_per_token(config.model).model == Approx(3 * (3 * encoder + 2 * decoder + 2 * d * h * vocab) / s));
  const auto repeated = [&](const RecomputedLayers& layers) {
    return flops_per_token(config.model, layers).hardware - flops_per_token(config.model).hardware;
  };
  CHECK(repeated({2, 0}) == Approx(2 * (encoder - 2 * s * h * f) / s));
  CHECK(repeated({0, 1}) == Approx((decoder - 2 * d * h * f) / s));
}
