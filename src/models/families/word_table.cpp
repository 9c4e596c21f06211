#include "models/families/word_table.h"

namespace megatron {

namespace {

constexpr int kWordTie = 0;

int declare_table(ParameterBuilder& builder, Role role, const std::string& name, const ModelConfig& model) {
  return builder.vocabulary_table(role, name, model.padded_vocab(), model.hidden_size, model.init_std);
}

}  // namespace

std::vector<std::vector<int>> word_table_ties(const Config& config) {
  const int stages = static_cast<int>(config.parallel.pipeline);
  if (!config.model.tie_embeddings || stages == 1) return {};
  return {{0, stages - 1}};
}

int declare_word_table(ParameterBuilder& builder, const ModelConfig& model, const ProcessGrid& grid) {
  const int word = declare_table(builder, Role::embedding, "embedding.word.weight", model);
  if (model.tie_embeddings && grid.shape().pipeline > 1) {
    builder.store().mark_tied(word, kWordTie, /*owner=*/grid.tie(kWordTie).rank() == 0);
  }
  return word;
}

int declare_head_table(ParameterBuilder& builder, const ModelConfig& model) {
  return declare_table(builder, Role::head, "head.weight", model);
}

}  // namespace megatron
