#include "models/families/t5_tables.h"

#include <algorithm>
#include <array>
#include <set>

#include "config/schema/layer_split.h"

namespace megatron {

namespace {

enum Table { word, position, encoder_distances, decoder_distances, kTables };
using StageNumbers = std::set<int>;

/// Stages that use each table, perhaps none.
std::array<StageNumbers, kTables> users_of_tables(const Config& config) {
  const ModelConfig& model = config.model;
  std::array<StageNumbers, kTables> users;
  const StageNumbers embeddings = {0, stage_of_layer(model, config.parallel, model.layers)};
  users[word] = embeddings;
  if (model.tie_embeddings) users[word].insert(static_cast<int>(config.parallel.pipeline) - 1);
  if (model.positions() == PositionEmbedding::learned) users[position] = embeddings;
  if (model.positions() != PositionEmbedding::relative) return users;
  for (std::int64_t layer = 0; layer < model.all_layers(); ++layer) {
    users[layer < model.layers ? encoder_distances : decoder_distances].insert(
        stage_of_layer(model, config.parallel, layer));
  }
  return users;
}

}  // namespace

std::vector<std::vector<int>> t5_ties(const Config& config) {
  std::vector<std::vector<int>> ties;
  for (const StageNumbers& stages : users_of_tables(config)) {
    if (stages.size() > 1) ties.emplace_back(stages.begin(), stages.end());
  }
  return ties;
}

T5Tables declare_t5_tables(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid) {
  const ModelConfig& model = config.model;
  const std::array<StageNumbers, kTables> users = users_of_tables(config);
  int ties = 0;
  const auto declare = [&](Table table, const auto& declared) {
    const StageNumbers& stages = users[table];
    const int tie = stages.size() > 1 ? ties++ : kNone;
    if (!stages.contains(grid.at().pipeline)) return kNone;
    const int index = declared();
    if (tie != kNone) builder.store().mark_tied(index, tie, /*owner=*/grid.tie(tie).rank() == 0);
    return index;
  };
  const auto distances = [&](const char* name, std::int64_t first_layer) {
    return [&builder, &model, name, first_layer] {
      return builder.in_layer(first_layer)
          .column_parallel_weight(Role::embedding, name, model.attention_heads, model.relative_buckets, model.init_std);
    };
  };
  T5Tables tables;
  tables.word = declare(word, [&] {
    return builder.vocabulary_table(Role::embedding, "embedding.word.weight", model.padded_vocab(), model.hidden_size,
                                    model.init_std);
  });
  tables.position = declare(position, [&] {
    return builder.replicated_matrix(Role::embedding, "embedding.position.weight", model.max_position_embeddings,
                                     model.hidden_size, model.init_std);
  });
  tables.encoder_distances = declare(encoder_distances, distances("relative.encoder.weight", 0));
  tables.decoder_distances = declare(decoder_distances, distances("relative.decoder.weight", model.layers));
  return tables;
}

}  // namespace megatron
