// Layout: what the tests of a replica's memory vary of a tiny training, and the configuration that it stands for.
#pragma once

#include <cstdint>
#include <vector>

#include "support/tiny_training.h"

namespace megatron::test {

/// Differences of a tiny training from tiny_config().
struct Layout {
  int tensor = 1, data = 1, pipeline = 1;
  std::int64_t micro_batch = 1;
  bool sequence_parallel = false;
  const char* schedule = "1f1b";
  std::int64_t virtual_stages = 1;
  std::vector<std::int64_t> layers_per_stage = {};
  double dropout = 0.1;
  RecomputeConfig recompute = {};
  BatchRampUp ramp_up = {};
  const char* share = "none";
  Curriculum curriculum = {};
  const char* optimizer = "adamw";
  double momentum = 0.9;
  std::vector<ParameterGroupConfig> groups = {};
  const char* compute = "fp32";
  std::int64_t threads = 1;
  void (*variant)(ModelConfig&) = [](ModelConfig&) {};
  bool tasks = false;  ///< evaluation tasks, inside training
  const char* task = "";
  int expert = 1;
  const char* moments = "fp32";
  int context = 1;
  const char* exchange = "auto";
  double in_file = 0;  ///< fraction of the optimizer's state there
  std::int64_t share_within = 0;
};

/// Experts in every layer that drop no tokens.
inline void without_drops(ModelConfig& model) {
  with_experts(model);
  model.moe.every = 1;
  model.moe.drop = "none";
  model.moe.buffer = 1;
  model.moe.evaluation_capacity_factor = 0;
}

/// Heads whose rows are in three chunks.
inline void with_head_chunks(ModelConfig& model) {
  model.head_chunks = 3;
}
inline void bert_with_head_chunks(ModelConfig& model) {
  like_bert(model);
  model.head_chunks = 3;
}
inline void t5_with_head_chunks(ModelConfig& model) {
  like_megatron_t5(model);
  model.head_chunks = 3;
}

/// A group of these names with its own rule.
inline ParameterGroupConfig group_with_rule(std::vector<std::string> names, const char* rule) {
  ParameterGroupConfig group{.roles = {}, .names = std::move(names), .keys = {"name"}};
  group.values.name = rule;
  return group;
}

inline Config config_of(const Layout& layout) {
  Config config = tiny_config();
  config.parallel.tensor = layout.tensor;
  config.parallel.data = layout.data;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.expert = layout.expert;
  config.parallel.context = layout.context;
  config.parallel.context_exchange = layout.exchange;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  config.parallel.schedule = layout.schedule;
  config.parallel.virtual_stages = layout.virtual_stages;
  config.parallel.layers_per_stage = layout.layers_per_stage;
  config.train.micro_batch_size = layout.micro_batch;
  config.recompute = layout.recompute;
  config.train.batch_ramp_up = layout.ramp_up;
  config.optimizer.share = layout.share;
  config.train.curriculum = layout.curriculum;
  config.optimizer.name = layout.optimizer;
  config.optimizer.momentum = layout.momentum;
  config.optimizer_groups = layout.groups;
  config.optimizer.moments_dtype = layout.moments;
  config.optimizer.share_within = layout.share_within;
  if (layout.in_file > 0) {
    config.optimizer.offload = "file";
    config.optimizer.offload_fraction = layout.in_file;
  }
  config.precision.compute = layout.compute;
  config.run.threads = layout.threads;
  config.model.hidden_dropout = config.model.attention_dropout = layout.dropout;
  layout.variant(config.model);
  config.task.name = layout.task;
  if (layout.tasks) config.evaluation.tasks = {{.name = "words", .task = "lambada", .data = "words.jsonl"}};
  return config;
}

}  // namespace megatron::test
