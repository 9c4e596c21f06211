#include "planning/bench/cases.h"

#include "base/core/attention_exchanges.h"
#include "config/rules/resolve.h"
#include "config/schema/schedules.h"

namespace megatron {

namespace {

void bf16(Config& config) {
  config.precision.compute = "bf16";
}
void data2(Config& config) {
  config.parallel.data = 2;
}
void tensor2(Config& config) {
  config.parallel.tensor = 2;
}

ModelConfig bert_base() {
  ModelConfig model = gpt(12, 768, 12, 512, 30522);
  model.family = "bert";
  return model;
}

ModelConfig t5_base_4_layers() {
  ModelConfig model = gpt(4, 768, 12, 512, 32128);
  model.family = "t5";
  model.decoder_sequence_length = 128;
  model.position_embedding = "relative";
  model.normalization = "rmsnorm";
  model.activation = "relu";
  model.attention_scale = "none";
  model.bias = false;
  model.scale_head = true;
  return model;
}

/// Six layers of the 124M's width. With experts, two for each token, each is half as wide as its feed-forward part.
ModelConfig six_layers(bool experts) {
  ModelConfig model = gpt(6, 768, 12, 256, 8192);
  if (experts) {
    model.moe.experts = 8;
    model.moe.ffn_hidden_size = 1536;
  }
  return model;
}

ModelConfig mixtral_6_layers() {
  ModelConfig model = six_layers(true);
  model.position_embedding = "rope";
  model.normalization = "rmsnorm";
  model.activation = "swiglu";
  model.bias = model.tie_embeddings = false;
  model.moe.drop = "none";
  return model;
}

}  // namespace

ModelConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t sequence,
                std::int64_t vocabulary) {
  ModelConfig model;
  model.layers = layers;
  model.hidden_size = hidden;
  model.attention_heads = heads;
  model.sequence_length = sequence;
  model.vocab_size = vocabulary;
  model.hidden_dropout = model.attention_dropout = 0;
  return model;
}

ModelConfig gpt2_124m(std::int64_t sequence) {
  ModelConfig model = gpt(12, 768, 12, sequence);
  model.max_position_embeddings = 1024;
  return model;
}

Config training_config(const ModelConfig& model, std::int64_t batch, const std::function<void(Config&)>& edit) {
  Config config;
  config.model = model;
  config.parallel.data = 1;
  config.train.global_batch_size = batch;
  config.train.micro_batch_size = 0;
  config.train.steps = 1000;
  config.data.train = "pseudo-random tokens";  // rules want a name; nothing is read
  if (edit) edit(config);
  const ParallelConfig& parallel = config.parallel;
  if (config.train.micro_batch_size == 0) config.train.micro_batch_size = batch / parallel.data;
  resolve(config, static_cast<int>(parallel.tensor * parallel.context * parallel.pipeline * parallel.data), nullptr);
  return config;
}

std::vector<Case> benchmark_cases(std::string_view precision) {
  const auto cpu = [&](const char* name, std::string title, const ModelConfig& model, std::int64_t batch, int steps,
                       const std::function<void(Config&)>& layout = {}) -> Case {
    if (precision != Config().precision.compute) title += fmt::format(", {}", precision);
    return {name, std::move(title),
            training_config(model, batch,
                            [&](Config& config) {
                              config.precision.compute = precision;
                              if (layout) layout(config);
                            }),
            steps};
  };
  const auto gpu = [](const char* name, const char* title, const ModelConfig& model, std::int64_t batch) -> Case {
    return {name, title, training_config(model, batch, bf16), 20, true};
  };
  return {
      cpu("gpt2_124m_4x256", "GPT-2 124M, batch 4 x 256", gpt2_124m(256), 4, 7),
      cpu("gpt2_124m_1x1024", "GPT-2 124M, batch 1 x 1024", gpt2_124m(1024), 1, 7),
      cpu("small_8x256", "4 layers of hidden size 256, vocabulary 384, batch 8 x 256", gpt(4, 256, 4, 256, 384), 8, 21),
      cpu("bert_base_8x512", "BERT-base, batch 8 x 512", bert_base(), 8, 5),
      cpu("t5_base_4x512", "4 + 4 layers of T5-base, batch 4 x 512 + 128", t5_base_4_layers(), 4, 7),
      cpu("mixtral_4x256", "6 layers of a Mixtral with hidden size 768, batch 4 x 256", mixtral_6_layers(), 4, 7),
      cpu("gpt2_124m_tensor2", "GPT-2 124M, batch 4 x 256, tensor 2", gpt2_124m(256), 4, 7, tensor2),
      cpu("gpt2_124m_data2", "GPT-2 124M, batch 4 x 256, data 2", gpt2_124m(256), 4, 7, data2),
      gpu("gpu_gpt2_124m", "GPT-2 124M, batch 64 x 1024, bf16", gpt2_124m(1024), 64),
      gpu("gpu_gpt2_1558m", "GPT-2 1.5B, batch 16 x 1024, bf16", gpt(48, 1600, 25, 1024), 16),
      gpu("gpu_7b_4_layers", "4 layers of a 7B model, batch 4 x 4096, bf16", gpt(4, 4096, 32, 4096), 4)};
}

std::vector<Case> experts_cases(int ranks) {
  const auto experts = [](const char* name, double capacity_factor, int data, int expert) -> Case {
    return {name, "", training_config(six_layers(true), 4, [&](Config& config) {
              config.model.moe.capacity_factor = capacity_factor;
              config.parallel.data = data;
              config.parallel.expert = expert;
            })};
  };
  if (ranks == 2) return {experts("8 experts, data 2", 1, 2, 1), experts("8 experts, expert 2", 1, 2, 2)};
  return {{"dense", "", training_config(six_layers(false), 4)},
          experts("8 experts, capacity factor 1", 1, 1, 1),
          experts("8 experts, capacity factor 1.25", 1.25, 1, 1)};
}

std::vector<Case> overlap_cases() {
  const auto layout = [](const char* name, const std::function<void(Config&)>& edit) -> Case {
    return {name, "", training_config(gpt(4, 768, 12, 128, 2048), 4, edit)};
  };
  return {layout("data 2", data2),
          layout("data 2, distributed optimizer",
                 [](Config& config) {
                   data2(config);
                   config.optimizer.share = "state";
                 }),
          layout("tensor 2", tensor2), layout("tensor 2, sequence parallel", [](Config& config) {
            tensor2(config);
            config.parallel.sequence_parallel = true;
          })};
}

LayoutComparison share_comparison() {
  LayoutComparison comparison{
      "share", "8 layers of hidden size 768, one micro-batch of 2 x 256 on each of 2 data ranks, in turn", {}};
  const auto add = [&](std::string_view share) {
    comparison.cases.push_back(
        {std::string(share), "", training_config(gpt(8, 768, 12, 256, 2048), 4, [&](Config& config) {
           data2(config);
           config.optimizer.share = share;
         })});
  };
  add("state");
  for (const ShareRow& row : kShares) {
    if (row.name != "state") add(row.name);
  }
  return comparison;
}

LayoutComparison context_comparison() {
  constexpr std::int64_t sequence = 4096;
  LayoutComparison comparison{"context", "4 layers of hidden size 768, 4096 tokens, 2 ranks, in turn", {}};
  comparison.cases.push_back({"data 2, 2 x 2048", "", training_config(gpt(4, 768, 12, sequence / 2, 2048), 2, data2)});
  for (const AttentionExchangeRow& row : kAttentionExchanges) {
    comparison.cases.push_back({fmt::format("context 2, 1 x 4096, {}", row.name), "",
                                training_config(gpt(4, 768, 12, sequence, 2048), 1, [&](Config& config) {
                                  config.parallel.context = 2;
                                  config.parallel.context_exchange = row.name;
                                })});
  }
  return comparison;
}

std::vector<Case> memory_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& option, const std::function<void(Config&)>& apply) {
    const auto edit = [&](Config& config) {
      config.model.hidden_dropout = config.model.attention_dropout = ModelConfig().hidden_dropout;
      config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 2;
      config.train.micro_batch_size = 4;
      apply(config);
    };
    cases.push_back({option, "", training_config(gpt2_124m(1024), 64, edit)});
  };
  const auto guide = [](Config& config) {
    config.parallel.sequence_parallel = true;
    config.optimizer.share = "state";
    config.recompute.mode = "selective";
    bf16(config);
  };
  add("none", [](Config&) {});
  add("sequence_parallel", [](Config& config) { config.parallel.sequence_parallel = true; });
  for (const RecomputePartChoice& part : kRecomputeParts) {
    add(fmt::format("recompute {}", part.name),
        [&part](Config& config) { config.recompute = {.mode = "selective", .parts = {part.kind}}; });
  }
  add("recompute selective", [](Config& config) { config.recompute.mode = "selective"; });
  add("recompute full, 3 of 6 layers", [](Config& config) { config.recompute = {.mode = "full", .layers = 3}; });
  add("recompute full", [](Config& config) { config.recompute.mode = "full"; });
  add("bf16", bf16);
  add("distributed optimizer", [](Config& config) { config.optimizer.share = "state"; });
  add("micro-batches of 1", [](Config& config) { config.train.micro_batch_size = 1; });
  add("the guide's together", guide);
  add("the same, recompute full", [&](Config& config) {
    guide(config);
    config.recompute.mode = "full";
  });
  for (const ScheduleFacts& schedule : kSchedules) {
    if (schedule.name == ParallelConfig().schedule) continue;
    add(std::string(schedule.name) + (schedule.chunks ? ", 3 chunks" : ""), [&](Config& config) {
      config.parallel.schedule = schedule.name;
      if (schedule.chunks) config.parallel.virtual_stages = 3;
    });
  }
  return cases;
}

}  // namespace megatron
