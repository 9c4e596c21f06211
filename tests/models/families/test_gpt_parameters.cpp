// Parts of a GPT that each rank holds, on paper: over the whole grid every element of every parameter has exactly one
// rank that counts it, whatever the layout.
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "backend/ops/backends.h"
#include "config/parse/presets.h"
#include "distributed/comm/counting_communicator.h"
#include "models/families/family.h"
#include "support/boxes.h"
#include "support/catch.h"
#include "support/model_sizes.h"

using namespace megatron;
using namespace megatron::test;

namespace {

ModelConfig tiny_model() {
  ModelConfig model;
  model.layers = 4;
  model.hidden_size = 16;
  model.attention_heads = model.query_groups = 4;
  model.ffn_hidden_size = 24;
  model.sequence_length = 8;
  model.max_position_embeddings = 10;
  model.vocab_size = 50;
  model.vocab_multiple = 64;
  return model;
}

/// visit(store, coordinates) for every rank of a grid.
template <class Visit>
void for_each_gpt_rank(const ModelConfig& model, const ParallelConfig& parallel, const GridShape& shape,
                       const Visit& visit) {
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    CountingCommunicator world(rank, shape.ranks());
    Config config;
    config.model = model;
    config.parallel = parallel;
    GridShape shared = shape;
    shared.ties = family_of(model).ties(config);
    shared.kv_replicas = std::max(1, shape.tensor / static_cast<int>(model.query_groups));
    const ProcessGrid grid(world, shared);
    const TensorRegion region(grid, parallel.sequence_parallel);
    ParameterStore store;
    const auto chunks = make_stages(config, grid, region, store);
    visit(store, grid.at());
  }
}

struct Holders {
  Shape global_shape;
  std::vector<int> owner, held;  // ranks of one model replica, by element
};

std::map<std::string, Holders> holders_of(const ModelConfig& model, const ParallelConfig& parallel,
                                          const GridShape& shape) {
  std::map<std::string, Holders> all;
  for_each_gpt_rank(model, parallel, shape, [&](const ParameterStore& store, const GridCoordinates& at) {
    if (at.data != 0) return;
    for (const Parameter& parameter : store.all()) {
      Holders& holders = all[parameter.name];
      holders.global_shape = parameter.global_shape;
      holders.owner.resize(static_cast<std::size_t>(parameter.global_shape.elements()));
      holders.held.resize(holders.owner.size());
      for_each_run(parameter, [&](std::int64_t first, std::int64_t, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) {
          ++holders.held[static_cast<std::size_t>(i)];
          if (parameter.owner) ++holders.owner[static_cast<std::size_t>(i)];
        }
      });
    }
  });
  return all;
}

bool all_are(const std::vector<int>& counts, int count) {
  return counts == std::vector<int>(counts.size(), count);
}

}  // namespace

TEST_CASE("GPT parameters: exactly one rank of a replica owns each element") {
  struct Layout {
    int tensor, data, pipeline;
    bool sequence_parallel;
    std::vector<std::int64_t> layers_per_stage;
    std::int64_t chunks = 1;
  };
  const ModelConfig model = tiny_model();
  const std::map<std::string, Holders> whole = holders_of(model, {}, {});
  REQUIRE(whole.size() == 2 + 4 * 16 + 2);
  for (const Layout& layout :
       {Layout{1, 1, 1, false, {}}, Layout{2, 1, 1, false, {}}, Layout{4, 2, 1, true, {}}, Layout{1, 1, 2, false, {}},
        Layout{2, 2, 4, false, {}}, Layout{2, 2, 2, true, {1, 3}}, Layout{4, 1, 4, true, {0, 3, 1, 0}},
        Layout{2, 1, 2, false, {}, 2}, Layout{1, 1, 2, true, {1, 0, 2, 0, 1, 0}, 3}}) {
    CAPTURE(layout.tensor, layout.data, layout.pipeline, layout.sequence_parallel);
    ParallelConfig parallel;
    parallel.pipeline = layout.pipeline;
    parallel.sequence_parallel = layout.sequence_parallel;
    parallel.layers_per_stage = layout.layers_per_stage;
    parallel.virtual_stages = layout.chunks;
    const auto all =
        holders_of(model, parallel, {.tensor = layout.tensor, .data = layout.data, .pipeline = layout.pipeline});
    CHECK(all.size() == whole.size());
    for (const auto& [name, holders] : all) {
      INFO(name);
      CHECK(all_are(holders.owner, 1));
      REQUIRE(whole.count(name) == 1);
      CHECK(holders.global_shape == whole.at(name).global_shape);
    }
    // The tied table lies on two stages; norms, and biases after a sum, on all tensor ranks.
    CHECK(all_are(all.at("embedding.word.weight").held, layout.pipeline > 1 ? 2 : 1));
    CHECK(all_are(all.at("embedding.position.weight").held, layout.tensor));
    CHECK(all_are(all.at("layers.2.mlp_norm.weight").held, layout.tensor));
    CHECK(all_are(all.at("layers.2.mlp.down.bias").held, layout.tensor));
    CHECK(all_are(all.at("layers.2.attention.query.weight").held, 1));
  }
}

TEST_CASE("GPT parameters: each element of a variant is owned once on any layout") {
  ModelConfig model = tiny_model();
  model.query_groups = GENERATE(4, 2, 1);
  model.bias = model.tie_embeddings = false;
  model.position_embedding = "alibi";
  const std::map<std::string, Holders> whole = holders_of(model, {}, {});
  REQUIRE(whole.size() == 1 + 4 * 10 + 2 + 1);
  CHECK(whole.at("layers.0.attention.key.weight").global_shape == Shape{4 * model.query_groups, 16});
  CHECK(whole.count("head.weight") == 1);
  for (const auto& [tensor, pipeline, sequence_parallel] :
       {std::tuple(2, 1, false), std::tuple(4, 1, true), std::tuple(2, 4, true), std::tuple(4, 2, false)}) {
    CAPTURE(tensor, pipeline, sequence_parallel, model.query_groups);
    ParallelConfig parallel;
    parallel.pipeline = pipeline;
    parallel.sequence_parallel = sequence_parallel;
    const auto all = holders_of(model, parallel, {.tensor = tensor, .pipeline = pipeline});
    CHECK(all.size() == whole.size());
    for (const auto& [name, holders] : all) {
      INFO(name);
      CHECK(all_are(holders.owner, 1));
      CHECK(holders.global_shape == whole.at(name).global_shape);
    }
    const int kv_replicas = std::max(1, tensor / static_cast<int>(model.query_groups));
    CHECK(all_are(all.at("layers.3.attention.key.weight").held, kv_replicas));
    CHECK(all_are(all.at("layers.3.attention.value.weight").held, kv_replicas));
    CHECK(all_are(all.at("layers.3.attention.query.weight").held, 1));
    CHECK(all_are(all.at("embedding.word.weight").held, 1));
    CHECK(all_are(all.at("head.weight").held, 1));
  }
}

TEST_CASE("GPT parameters: chunk c of stage r begins at c · L/v + r · L/(v p)") {
  ModelConfig model = tiny_model();
  model.layers = 8;
  ParallelConfig parallel;
  parallel.pipeline = 2;
  parallel.virtual_stages = 2;
  for_each_gpt_rank(model, parallel, {.pipeline = 2}, [&](const ParameterStore& store, const GridCoordinates& at) {
    std::vector<std::string> layers, ends;
    for (const Parameter& parameter : store.all()) {
      if (parameter.name.ends_with("mlp.up.weight")) layers.push_back(parameter.name.substr(7, 1));
      if (!parameter.name.starts_with("layers")) ends.push_back(parameter.name);
    }
    using Names = std::vector<std::string>;
    CHECK(layers == (at.pipeline == 0 ? Names{"0", "1", "4", "5"} : Names{"2", "3", "6", "7"}));
    CHECK(ends == (at.pipeline == 0 ? Names{"embedding.word.weight", "embedding.position.weight"}
                                    : Names{"embedding.word.weight", "final_norm.weight", "final_norm.bias"}));
  });
}

TEST_CASE("GPT parameters: placements and weight decay of each parameter") {
  ParallelConfig parallel;
  parallel.pipeline = 2;
  parallel.sequence_parallel = GENERATE(false, true);
  const Placement copies = parallel.sequence_parallel ? Placement::partial : Placement::replica;
  for_each_gpt_rank(tiny_model(), parallel, {.tensor = 2, .pipeline = 2},
                    [&](const ParameterStore& store, const GridCoordinates& at) {
                      for (const Parameter& parameter : store.all()) {
                        INFO(parameter.name << " on tensor rank " << at.tensor << ", stage " << at.pipeline);
                        const bool whole = parameter.box.extent == parameter.global_shape;
                        CHECK(parameter.tensor == (whole ? copies : Placement::split));
                        CHECK(parameter.copies == CopyGroup::dense);
                        const bool tied = parameter.name == "embedding.word.weight";
                        CHECK(parameter.tie == (tied ? 0 : kNone));
                        CHECK(parameter.decays() == (parameter.global_shape.rank() == 2));
                      }
                    });
}

TEST_CASE("GPT parameters: tensor neighbours share keys and values of few groups") {
  ModelConfig model = tiny_model();
  model.query_groups = 2;
  for_each_gpt_rank(model, {}, {.tensor = 4}, [&](const ParameterStore& store, const GridCoordinates& at) {
    for (const Parameter& parameter : store.all()) {
      const bool shared =
          parameter.name.find("key.") != std::string::npos || parameter.name.find("value.") != std::string::npos;
      CHECK((parameter.tensor == Placement::kv_replicated) == shared);
      if (!shared) continue;
      INFO(parameter.name << " on tensor rank " << at.tensor);
      CHECK(parameter.box.offset[0] == at.tensor / 2 * 4);
      CHECK(parameter.box.extent[0] == 4);
      CHECK(parameter.owner == (at.tensor % 2 == 0));
    }
  });
}

TEST_CASE("query, key and value, and their biases, are side by side in memory") {
  for_each_gpt_rank(tiny_model(), {}, {.tensor = 2}, [&](ParameterStore& store, const GridCoordinates&) {
    std::map<std::string, int> index;
    for (std::size_t i = 0; i < store.all().size(); ++i) index[store.all()[i].name] = static_cast<int>(i);
    store.allocate_sizing(DType::f32);
    const Tensor weights = store.joint_value(index.at("layers.1.attention.query.weight"), 3, 16);
    CHECK(weights.shape() == Shape{24, 16});
    CHECK(weights.slice(0, 8, 8).data() == store.at(index.at("layers.1.attention.key.weight")).value.data());
    CHECK(weights.slice(0, 16, 8).data() == store.at(index.at("layers.1.attention.value.weight")).value.data());
    CHECK(store.joint_value(index.at("layers.1.attention.query.bias"), 3, 0).elements() == 24);
  });
}

TEST_CASE("GPT parameters: initial weights and tied tables ignore the layout") {
  const ModelConfig model = tiny_model();
  const auto values_on = [&](const GridShape& shape, bool owner) {
    Backend backend = make_cpu_backend();
    ParallelConfig parallel;
    parallel.pipeline = shape.pipeline;
    NamedValues values;
    for_each_gpt_rank(model, parallel, shape, [&](ParameterStore& store, const GridCoordinates&) {
      store.allocate(*backend.device, DType::f32);
      store.initialize(*backend.ops, 42);
      for (const Parameter& parameter : store.all()) {
        if (parameter.owner == owner) assemble(parameter, parameter.value, values);
      }
    });
    return values;
  };
  const NamedValues whole = values_on({}, true);
  CHECK(values_on({.tensor = 2}, true) == whole);
  CHECK(values_on({.tensor = 4, .pipeline = 2}, true) == whole);
  const NamedValues copies = values_on({.tensor = 4, .pipeline = 4}, false);
  REQUIRE(copies.count("embedding.word.weight") == 1);
  for (const auto& [name, values] : copies) CHECK(values == whole.at(name));
}

TEST_CASE("GPT parameters: GPT-2 large on 2 x 2 ranks has the published numbers") {
  ModelConfig model = model_of({.layers = 36,
                                .hidden = 1280,
                                .heads = 20,
                                .ffn = 5120,
                                .sequence = 1024,
                                .vocabulary = 50257,
                                .vocabulary_multiple = 256});
  REQUIRE(model.padded_vocab() == 50432);
  ParallelConfig parallel;
  parallel.pipeline = 2;
  for_each_gpt_rank(model, parallel, {.tensor = 2, .pipeline = 2},
                    [&](const ParameterStore& store, const GridCoordinates& at) {
                      CHECK(store.parameter_elements() == (at.pipeline == 0 ? 210753280 : 209445120));
                    });
}

TEST_CASE("presets have the published numbers of parameters") {
  struct Published {
    const char* preset;
    std::int64_t vocabulary, parameters;
  };
  for (const auto& [name, vocabulary, parameters] :
       {Published{"tinyllama-1.1b", 32000, 1100048384}, Published{"llama2-7b", 32000, 6738415616},
        Published{"llama2-13b", 32000, 13015864320}, Published{"llama2-70b", 32000, 68976648192},
        Published{"llama3-8b", 128256, 8030261248}, Published{"llama3-70b", 128256, 70553706496},
        Published{"mistral-7b", 32000, 7241732096}, Published{"qwen2.5-0.5b", 151936, 494032768},
        Published{"qwen2.5-7b", 152064, 7615616512}, Published{"qwen3-0.6b", 151936, 596049920},
        Published{"qwen3-8b", 151936, 8190735360}, Published{"gemma-2b", 256000, 2506172416},
        Published{"gemma-7b", 256000, 8537680896}, Published{"opt-125m", 50272, 125239296 - 2 * 768},
        Published{"opt-1.3b", 50272, 1315758080 - 2 * 2048},  // less two rows of positions that are never used
        Published{"pythia-160m", 50304, 162322944}, Published{"pythia-1.4b", 50304, 1414647808},
        Published{"bloom-560m", 250880, 559214592}}) {
    INFO(name);
    ModelConfig model = find_preset(name)->model;
    model.vocab_size = vocabulary;
    model.vocab_multiple = 16;
    if (model.query_groups == 0) model.query_groups = model.attention_heads;
    if (model.ffn_hidden_size == 0) model.ffn_hidden_size = 4 * model.hidden_size;
    std::int64_t whole = 0, split = 0;
    for_each_gpt_rank(model, {}, {},
                      [&](const ParameterStore& store, const GridCoordinates&) { whole = store.parameter_elements(); });
    CHECK(whole == parameters);
    ParallelConfig parallel;
    parallel.pipeline = 2;
    int tensor = 16;  // more than some have groups
    while (model.attention_heads % tensor != 0) tensor /= 2;
    for_each_gpt_rank(model, parallel, {.tensor = tensor, .pipeline = 2},
                      [&](const ParameterStore& store, const GridCoordinates&) {
                        for (const Parameter& parameter : store.all())
                          split += parameter.owner ? parameter.elements() : 0;
                      });
    CHECK(split == parameters);
  }
}
