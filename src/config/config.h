// Config: one struct per table of the input file. Filled, checked and printed by schema.h; read by all layers above.
//
// After `resolve` (resolve.h) every derived value is set, so that no default is computed a second time, and lengths
// are in one normal form: the run in train.steps, warm-up and decay in samples (or, where the learning rate counts
// tokens, in tokens); the other ways to say them are zero again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/activations.h"
#include "base/dtype.h"
#include "base/evaluation_tasks.h"
#include "base/named_rows.h"
#include "base/normalizations.h"
#include "config/schedules.h"

namespace megatron {

/// Longer sequences than a model's rotations were made for: "linear" divides positions by `factor` (Chen et al. 2023);
/// "llama3" slows only waves that are longer than original_length / low_frequency_factor by it, leaves those shorter
/// than original_length / high_frequency_factor alone, and goes over smoothly between (Llama 3.1).
struct RotaryScalingConfig {
  std::string type;  // "": none; "linear", "llama3"
  double factor = 0;
  double low_frequency_factor = 1, high_frequency_factor = 4;  // of "llama3"
  std::int64_t original_length = 8192;                         // of "llama3"

  bool operator==(const RotaryScalingConfig&) const = default;
};

/// Which linear layers of a block have a bias; `true` and `false` stand for all and none.
struct BiasConfig {
  bool query_key_value = true, attention_output = true, feed_forward = true;

  constexpr BiasConfig(bool all = true) : BiasConfig(all, all, all) {}
  constexpr BiasConfig(bool query_key_value_, bool attention_output_, bool feed_forward_)
      : query_key_value(query_key_value_), attention_output(attention_output_), feed_forward(feed_forward_) {}
  bool operator==(const BiasConfig&) const = default;
};
inline constexpr std::pair<std::string_view, BiasConfig> kBiasNames[] = {{"attention", {true, true, false}},
                                                                         {"query_key_value", {true, false, false}},
                                                                         {"feed_forward", {false, false, true}}};

struct ModelConfig {
  std::string preset;  // "" or a name from presets
  std::string family = "gpt";
  std::int64_t layers = 0, hidden_size = 0, attention_heads = 0;
  std::int64_t given_head_size = 0;   // 0: hidden_size / attention_heads; head_size() is either
  std::int64_t query_groups = 0;      // 0: = attention_heads
  std::int64_t attention_window = 0;  // positions that a token attends to, its own included; 0: all before it
  std::int64_t ffn_hidden_size = 0;   // 0: 4 · hidden_size; gated 8/3 · hidden_size, down to a multiple of 64
  std::int64_t sequence_length = 0;
  std::int64_t max_position_embeddings = 0;  // 0: = sequence_length
  std::int64_t vocab_size = 0;               // 0: the data's
  std::int64_t vocab_multiple = 128;
  std::string position_embedding = "learned";
  double rotary_fraction = 1, rotary_base = 10000;
  RotaryScalingConfig rotary_scaling;
  std::string activation = "gelu";
  std::string normalization = "layernorm";
  double norm_epsilon = 1e-5;
  bool query_key_norm = false;
  std::string residual = "sequential", norm_position = "pre";
  bool tie_embeddings = true, scale_embeddings = false, embedding_norm = false;
  BiasConfig bias;
  bool head_bias = false;
  double hidden_dropout = 0.1, attention_dropout = 0.1;
  double init_std = 0.02;

  bool gated() const {
    const ActivationRow* row = find_row(kActivations, activation);
    return row != nullptr && row->gated;
  }
  std::int64_t head_size() const { return given_head_size > 0 ? given_head_size : hidden_size / attention_heads; }
  /// Channels of a head that are rotated: the first ones. (0.35 · 80 is 28, whatever a double makes of it.)
  std::int64_t rotary_size() const {
    return static_cast<std::int64_t>(static_cast<double>(head_size()) * rotary_fraction * (1 + 1e-12));
  }
  std::int64_t padded_vocab() const { return (vocab_size + vocab_multiple - 1) / vocab_multiple * vocab_multiple; }

  bool operator==(const ModelConfig&) const = default;
};

struct ParallelConfig {
  std::int64_t tensor = 1, pipeline = 1, virtual_stages = 1, context = 1, expert = 1;
  std::int64_t data = 0;  // 0: what remains of the ranks
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  std::vector<std::int64_t> layers_per_stage;  // empty: evenly
  bool overlap_gradients = false;

  bool operator==(const ParallelConfig&) const = default;
};

struct BatchRampUp {
  std::int64_t start = 0, increment = 0, samples = 0;  // start 0: none

  bool operator==(const BatchRampUp&) const = default;
};

struct Curriculum {
  std::string schedule;  // "": none; "fixed_linear", "fixed_root", "fixed_discrete"
  // The first two grow from `start` to model.sequence_length, with step `steps`, in multiples of `multiple`.
  std::int64_t start = 0, steps = 0, multiple = 8, root_degree = 2;
  std::vector<std::int64_t> lengths, until;  // of "fixed_discrete"

  bool operator==(const Curriculum&) const = default;
};
inline constexpr std::int64_t kMaxRootDegree = 4;

struct TrainConfig {
  std::int64_t steps = 0, samples = 0, tokens = 0;  // exactly one of the four is given; steps is resolved
  double epochs = 0;
  std::int64_t stop_after = 0;  // step; 0: none
  std::int64_t micro_batch_size = 1, global_batch_size = 0;
  BatchRampUp batch_ramp_up;
  Curriculum curriculum;
  std::uint64_t seed = 1234;
  std::int64_t evaluate_every = 0;  // steps; 0: only at the end
  bool evaluate_every_epoch = false;
  std::int64_t evaluate_steps = 10;
  std::int64_t max_skipped_steps = 20;      // in a row
  std::int64_t check_replicas_every = 100;  // steps, and before each save; 0: never

  bool operator==(const TrainConfig&) const = default;
};

/// Losses by name; train/losses.cpp has a row for each, with its function.
struct LossName {
  std::string_view name;
};
inline constexpr LossName kLossNames[] = {{"language_model"}, {"key_tokens"}};

struct LossConfig {
  std::string name = "language_model";
  std::vector<std::int64_t> token_ids;  // of "key_tokens"
  double alpha = 1;

  bool operator==(const LossConfig&) const = default;
};

struct PrecisionConfig {
  std::string compute = "fp32";
  double loss_scale = 0;  // 0: dynamic in fp16, else 1
  double initial_loss_scale = 4294967296, minimum_loss_scale = 1;
  std::int64_t loss_scale_window = 1000, loss_scale_hysteresis = 2;
  DType dtype() const { return compute == "bf16" ? DType::bf16 : compute == "fp16" ? DType::f16 : DType::f32; }

  bool operator==(const PrecisionConfig&) const = default;
};

struct RecomputeConfig {
  std::string mode = "none";
  std::int64_t layers = 0;  // of a model chunk, from its first on; 0: all

  /// How many of a model chunk's `chunk_layers` layers are recomputed: the first ones.
  std::int64_t of_chunk(std::int64_t chunk_layers) const {
    if (mode != "full") return 0;
    return layers == 0 || layers > chunk_layers ? chunk_layers : layers;
  }

  bool operator==(const RecomputeConfig&) const = default;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double beta1 = 0.9, beta2 = 0.999;  // betas = [beta1, beta2]
  double momentum = 0.9;              // of sgd
  double epsilon = 1e-8, weight_decay = 0.01;
  std::string weight_decay_schedule = "constant";
  std::optional<double> weight_decay_end;  // of a schedule that is not constant
  double clip_grad_norm = 1.0;
  bool distributed = false;

  bool operator==(const OptimizerConfig&) const = default;
};

struct LearningRateConfig {
  double peak = 1e-4, minimum = 0;
  std::int64_t warmup_steps = 0, warmup_samples = 0, warmup_tokens = 0;
  double warmup_fraction = 0;  // of the decay length
  std::string decay = "cosine";
  std::int64_t decay_steps = 0, decay_samples = 0, decay_tokens = 0;  // 0: the whole run
  // decay "wsd": the last part of these
  std::int64_t wsd_decay_steps = 0, wsd_decay_samples = 0, wsd_decay_tokens = 0;
  std::string wsd_style = "exponential";

  bool counts_tokens() const { return decay_tokens > 0; }  // after `resolve`; else samples

  bool operator==(const LearningRateConfig&) const = default;
};

struct BlendPart {
  std::string path;
  double weight = 1;

  bool operator==(const BlendPart&) const = default;
};

/// Token sets by weight; a path alone is a blend of one.
struct Blend {
  std::vector<BlendPart> parts;

  Blend() = default;
  Blend(const std::string& path) {
    if (!path.empty()) parts.push_back({path, 1});
  }
  Blend(const char* path) : Blend(std::string(path)) {}

  bool empty() const { return parts.empty(); }
  bool operator==(const Blend&) const = default;
};

struct DataConfig {
  Blend train, validation, test;  // prefixes, folders or patterns of token shards; validation/test empty: by split
  std::string split = "969,30,1";
  std::string split_by = "auto";   // "auto", "documents", "tokens"
  std::string order = "epoch";     // "epoch", "megatron", "megatron_core"
  std::int64_t order_samples = 0;  // with Megatron's orders; 0: the run's
  bool reset_attention_mask = false, reset_position_ids = false, eod_mask_loss = false;
  double mask_probability = 0.15, short_probability = 0.1;  // of samples of sentences

  /// Whether it matters where in a sample documents end.
  bool knows_documents() const { return reset_attention_mask || reset_position_ids || eod_mask_loss; }
  /// Whether samples come in the order of one of Megatron's data sets, which depends on the run's sample count.
  bool megatrons_order() const { return order != "epoch"; }

  bool operator==(const DataConfig&) const = default;
};

/// A task of base/evaluation_tasks.h in the middle of training.
struct EvaluationTaskConfig {
  std::string name;  // in metrics and log; given or the task's
  std::string task, data;
  std::int64_t every = 0;   // steps; 0: only at the end
  std::int64_t stride = 0;  // 0: the task's own
  bool strict = false;

  bool operator==(const EvaluationTaskConfig&) const = default;
};

struct EvaluationConfig {
  std::vector<EvaluationTaskConfig> tasks;

  bool operator==(const EvaluationConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every_steps = 0;  // 0: only the last step
  bool never = false;            // every_steps = "never"
  double every_minutes = 0;
  std::int64_t keep_last = 2;  // 0: all
  bool resume = true;
  std::string load, initialize_from;
  bool async = false;

  bool operator==(const CheckpointConfig&) const = default;
};

struct RunConfig {
  std::string directory = "run";
  std::string device = "auto";
  std::string communication = "auto";
  std::int64_t threads = 1;
  std::int64_t log_every = 1;
  std::int64_t metrics_every = 0;  // 0: as log_every
  double max_minutes = 0;          // 0: no limit
  double hang_minutes = 30;        // 0: never

  std::int64_t metrics_interval() const { return metrics_every > 0 ? metrics_every : log_every; }

  bool operator==(const RunConfig&) const = default;
};

struct Config {
  ModelConfig model;
  ParallelConfig parallel;
  TrainConfig train;
  LossConfig loss;
  PrecisionConfig precision;
  RecomputeConfig recompute;
  OptimizerConfig optimizer;
  LearningRateConfig learning_rate;
  DataConfig data;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoint;
  RunConfig run;

  bool operator==(const Config&) const = default;
};

}  // namespace megatron
