// Config: one struct per table of the input file. Filled, checked and printed by schema.h; read by all layers above.
//
// After `resolve` (resolve.h) every derived value is set, so that no default is computed a second time, and lengths
// are in one normal form: the run in train.steps, warm-up and decay in samples (or, where the learning rate counts
// tokens, in tokens); the other ways to say them are zero again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/activations.h"
#include "base/core/dtype.h"
#include "base/core/evaluation_tasks.h"
#include "base/core/named_rows.h"
#include "base/core/normalizations.h"
#include "config/schema/choices.h"
#include "config/schema/schedules.h"
#include "config/schema/update_rules.h"

namespace megatron {

/// Longer sequences than a model's rotations were made for: "linear" divides positions by `factor` (Chen et al. 2023);
/// "llama3" slows only waves that are longer than original_length / low_frequency_factor by it, leaves those shorter
/// than original_length / high_frequency_factor alone, and goes over smoothly between (Llama 3.1).
struct RotaryScalingConfig {
  std::string type;  // "": none; "linear", "llama3"
  double factor = 0;
  double low_frequency_factor = 1, high_frequency_factor = 4;  // for "llama3"
  std::int64_t original_length = 8192;                         // for "llama3"

  bool operator==(const RotaryScalingConfig&) const = default;
};

/// Linear layers of a block that have a bias; `true` and `false` stand for all and none.
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

/// Mixture of experts in place of the feed-forward part of some layers.
struct MoeConfig {
  std::int64_t experts = 0;          // per layer; 0: no mixture of experts
  std::int64_t top_k = 2;            // experts per token
  std::int64_t every = 1;            // in each stack the every-th layer has them, the 2 · every-th, ...
  std::vector<std::int64_t> layers;  // or these, counted from 0
  std::int64_t ffn_hidden_size = 0;  // one expert's; 0: the model's
  double capacity_factor = 1.25, evaluation_capacity_factor = 0;  // 0: as in training
  std::int64_t minimum_capacity = 4;
  std::string drop = "position";
  double buffer = 1.25;  // with "none": tokens exchanged at once, in equal shares
  bool renormalize = true;
  double balance_coefficient = 0.01, z_coefficient = 0;
  double bias_rate = 0;             // for the loss-free balance
  double jitter = 0;                // on the router's input in training
  std::int64_t shared_experts = 0;  // with ffn_hidden_size each; all tokens go through them
  bool shared_gate = false;         // times the sigmoid of a linear layer
  bool residual = false;            // the dense feed-forward part and the experts, mixed by a softmax

  ExpertDrop drops() const { return kind_of(kDrops, drop); }
  /// Width of all shared experts together.
  std::int64_t shared_ffn() const { return shared_experts * ffn_hidden_size; }
  /// Whether a layer of a stack has experts.
  bool in_layer(std::int64_t layer) const {
    if (experts == 0) return false;
    if (layers.empty()) return (layer + 1) % every == 0;
    return std::find(layers.begin(), layers.end(), layer) != layers.end();
  }
  /// How many of a stack's first `count` layers do.
  std::int64_t layers_among(std::int64_t count) const {
    std::int64_t sum = 0;
    for (std::int64_t layer = 0; layer < count; ++layer) sum += in_layer(layer) ? 1 : 0;
    return sum;
  }
  bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig {
  std::string preset;  // "" or a name from presets
  std::string family = "gpt";
  std::int64_t layers = 0, hidden_size = 0, attention_heads = 0;
  std::int64_t decoder_layers = 0;           // an encoder-decoder's, whose encoder has `layers`; 0: as many
  std::int64_t given_head_size = 0;          // 0: hidden_size / attention_heads; head_size() is either
  std::int64_t base_hidden_size = 0;         // for optimizer.scaling = "mup"; 0: the model is of no other width's
  std::int64_t base_head_size = 0;           // 0: = head_size()
  std::int64_t query_groups = 0;             // 0: = attention_heads
  std::int64_t attention_window = 0;         // positions that a token attends to, its own included; 0: all before it
  std::int64_t ffn_hidden_size = 0;          // 0: 4 · hidden_size; gated 8/3 · hidden_size, down to a multiple of 64
  std::int64_t sequence_length = 0;          // in an encoder-decoder, the encoder's
  std::int64_t decoder_sequence_length = 0;  // an encoder-decoder's; 0: a quarter of that, at least 3
  std::int64_t max_position_embeddings = 0;  // 0: = the longer of both
  std::int64_t vocab_size = 0;               // 0: the data's
  std::int64_t vocab_multiple = 128;
  std::string position_embedding = "learned";
  std::int64_t relative_buckets = 32, relative_max_distance = 128;  // for "relative"
  double rotary_fraction = 1, rotary_base = 10000;
  RotaryScalingConfig rotary_scaling;
  std::string activation = "gelu";
  std::string normalization = "layernorm";
  double norm_epsilon = 1e-5;
  bool query_key_norm = false;
  std::string attention_scale = "head_size";
  double attention_softcap = 0;  // bound of attention scores; 0: none
  std::string residual = "sequential", norm_position = "pre";
  bool tie_embeddings = true, scale_embeddings = false, embedding_norm = false;
  BiasConfig bias;
  bool head_bias = false, scale_head = false;
  double hidden_dropout = 0.1, attention_dropout = 0.1;
  double init_std = 0.02;
  MoeConfig moe;  // the table [moe]
  // Derived from [task] by `resolve`: the outputs of a task's head, 0 where there is none, and the columns of a batch
  // that make one sample, among which a multiple choice is.
  std::int64_t task_outputs = 0, task_choices = 1;

  std::int64_t task_classes() const { return task_outputs * task_choices; }
  PositionEmbedding positions() const { return kind_of(kPositionEmbeddings, position_embedding); }
  AttentionScale scale_of_scores() const { return kind_of(kAttentionScales, attention_scale); }
  ResidualOrder residuals() const { return kind_of(kResiduals, residual); }
  NormPosition norms() const { return kind_of(kNormPositions, norm_position); }
  bool gated() const {
    const ActivationRow* row = find_row(kActivations, activation);
    return row != nullptr && row->gated;
  }
  std::int64_t head_size() const { return given_head_size > 0 ? given_head_size : hidden_size / attention_heads; }
  /// The width that learning rates, weight decay and initial deviations are for.
  std::int64_t base_width() const { return base_hidden_size > 0 ? base_hidden_size : hidden_size; }
  /// Times which the model is wider than that.
  double width_factor() const {
    return base_hidden_size > 0 ? static_cast<double>(hidden_size) / static_cast<double>(base_hidden_size) : 1;
  }
  /// The head size in proportion to that of the model of this width.
  double head_size_factor() const {
    return base_head_size > 0 ? static_cast<double>(head_size()) / static_cast<double>(base_head_size) : 1;
  }
  /// Channels of a head that are rotated: the first ones. (0.35 · 80 is 28, whatever a double makes of it.)
  std::int64_t rotary_size() const {
    return static_cast<std::int64_t>(static_cast<double>(head_size()) * rotary_fraction * (1 + 1e-12));
  }
  /// Whether it has two streams of tokens: an encoder's, and a decoder's that sees it.
  bool has_decoder() const { return family == "t5"; }
  /// Tokens of the stream that predicts the next one.
  std::int64_t predicted_length() const { return has_decoder() ? decoder_sequence_length : sequence_length; }
  /// Layers of encoder and decoder together.
  std::int64_t all_layers() const {
    return layers + (!has_decoder() ? 0 : decoder_layers > 0 ? decoder_layers : layers);
  }
  /// Layers with experts among all_layers().
  std::int64_t expert_layers() const {
    return moe.layers_among(layers) + (has_decoder() ? moe.layers_among(all_layers() - layers) : 0);
  }
  std::int64_t padded_vocab() const { return (vocab_size + vocab_multiple - 1) / vocab_multiple * vocab_multiple; }

  bool operator==(const ModelConfig&) const = default;
};

struct ParallelConfig {
  std::int64_t tensor = 1, pipeline = 1, virtual_stages = 1, context = 1, expert = 1;
  std::int64_t data = 0;  // 0: the rest of the ranks
  std::string context_exchange = "auto";
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  std::vector<std::int64_t> layers_per_stage;  // empty: evenly
  std::int64_t split_stage = 0;                // asserts the first stage with decoder layers; 0: does not
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
  std::vector<std::int64_t> lengths, until;  // for "fixed_discrete"

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
  bool evaluate_at_start = false;
  std::int64_t evaluate_steps = 10;
  std::int64_t max_skipped_steps = 20;      // in a row
  std::int64_t check_replicas_every = 100;  // steps, and before each save; 0: never

  bool operator==(const TrainConfig&) const = default;
};

/// Losses by name; training/step/losses.cpp has a row for each, with its function.
struct LossName {
  std::string_view name;
};
inline constexpr LossName kLossNames[] = {{"language_model"}, {"key_tokens"}};

struct LossConfig {
  std::string name = "language_model";
  std::vector<std::int64_t> token_ids;  // for "key_tokens"
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
  std::int64_t layers = 0;  // in a model chunk, from its first on; 0: all

  RecomputeMode kind() const { return kind_of(kRecomputeModes, mode); }
  /// How many of a model chunk's `chunk_layers` layers are recomputed: the first ones.
  std::int64_t of_chunk(std::int64_t chunk_layers) const {
    if (kind() != RecomputeMode::full) return 0;
    return layers == 0 || layers > chunk_layers ? chunk_layers : layers;
  }

  bool operator==(const RecomputeConfig&) const = default;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double beta1 = 0.9, beta2 = 0.999;  // betas = [beta1, beta2]
  double momentum = 0.9;
  bool nesterov = true;
  std::string muon_scale = "spectral";
  double adamw_learning_rate_factor = 1;
  double epsilon = 1e-8, weight_decay = 0.01;
  std::string weight_decay_schedule = "constant";
  std::optional<double> weight_decay_end = {};  // for a schedule that is not constant
  double clip_grad_norm = 1.0;
  std::string scaling = "none";
  std::string moments_dtype = "fp32";
  bool distributed = false;

  DType moments() const { return moments_dtype == "bf16" ? DType::bf16 : DType::f32; }
  bool operator==(const OptimizerConfig&) const = default;
};

/// An entry of optimizer.groups: parameters that are updated in their own way.
struct ParameterGroupConfig {
  std::vector<std::string> roles, names;  // the parameters of these roles with names like these; empty: any
  double learning_rate_factor = 1;
  std::vector<std::string> keys = {};  // keys of [optimizer] that it has its own values of
  OptimizerConfig values = {};         // holds these values; its others mean nothing

  bool has_own(std::string_view key) const { return std::find(keys.begin(), keys.end(), key) != keys.end(); }
  bool operator==(const ParameterGroupConfig&) const = default;
};

struct LearningRateConfig {
  double peak = 1e-4, minimum = 0;
  std::int64_t warmup_steps = 0, warmup_samples = 0, warmup_tokens = 0;
  double warmup_fraction = 0;  // share of the decay length
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
  std::string name = {};  // all parts of a blend have one, or none has

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
  /// Whether evaluations report each set by its name.
  bool named() const { return !parts.empty() && !parts.front().name.empty(); }
  bool operator==(const Blend&) const = default;
};

struct DataConfig {
  Blend train, validation, test;  // prefixes, folders or patterns of token shards; validation/test empty: by split
  std::string split = "969,30,1";
  std::string split_by = "auto";   // "auto", "documents", "tokens"
  std::string order = "epoch";     // "epoch", "megatron", "megatron_core"
  std::int64_t order_samples = 0;  // with Megatron's orders; 0: the run's
  bool reset_attention_mask = false, reset_position_ids = false, eod_mask_loss = false;
  double mask_probability = 0.15, short_probability = 0.1;  // for samples of sentences

  /// Whether it matters where in a sample documents end.
  bool knows_documents() const { return reset_attention_mask || reset_position_ids || eod_mask_loss; }
  /// Whether samples come in the order of one of Megatron's data sets, which depends on the run's sample count.
  bool megatrons_order() const { return order != "epoch"; }

  bool operator==(const DataConfig&) const = default;
};

/// Task that a pretrained model is fine-tuned for (docs/fine_tuning.md).
struct TaskConfig {
  std::string name;  // "": pretraining; "classification", "multiple_choice", "instructions"
  std::string format = "json";
  std::vector<std::string> labels;                // for "classification" with format "json"
  std::int64_t choices = 4;                       // for "multiple_choice"
  std::string tokenizer, vocab_file, merge_file;  // "": that of the checkpoint it starts from
  std::int64_t extra_ids = 0;                     // sentinels that its vocabulary is to have
  // Chat lines have these before and after each role's text.
  std::string system_prefix, system_suffix = "\n", user_prefix = "User: ", user_suffix = "\n",
                             assistant_prefix = "Assistant: ", assistant_suffix = "\n";

  bool given() const { return !name.empty(); }
  /// Whether the model ends with a head of the task.
  bool has_head() const { return name == "classification" || name == "multiple_choice"; }
  bool operator==(const TaskConfig&) const = default;
};

/// A task of base/core/evaluation_tasks.h in the middle of training.
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

inline constexpr double kDefaultSaveMinutes = 30;

struct CheckpointConfig {
  std::int64_t every_steps = 0;  // 0: only the last step
  bool never = false;            // every_steps = "never"
  std::optional<double> every_minutes;
  std::int64_t keep_last = 2;  // 0: all
  bool keep_best = false;
  bool resume = true;
  std::string load, initialize_from;
  std::int64_t consumed_samples = 0;  // taken from the data's order before the run
  bool async = false;

  /// The longest time between saves; 0: no limit.
  double minutes_between() const { return every_minutes.value_or(never ? 0 : kDefaultSaveMinutes); }

  bool operator==(const CheckpointConfig&) const = default;
};

struct RunConfig {
  std::string directory = "run";
  std::string device = "auto";
  std::string communication = "auto";
  std::int64_t threads = 1;
  std::string native_16bit = "auto";
  std::int64_t log_every = 1;
  std::int64_t metrics_every = 0;  // 0: as log_every
  double max_minutes = 0;          // 0: no limit
  double hang_minutes = 30;        // 0: never
  bool tensorboard = true;
  bool parameter_norm = false;
  std::vector<std::int64_t> trace_steps;  // first and last; empty: none
  std::int64_t trace_events = 200'000;

  DeviceChoice device_choice() const { return kind_of(kDevices, device); }
  Native16Bit native_16bit_choice() const { return kind_of(kNative16Bit, native_16bit); }
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
  std::vector<ParameterGroupConfig> optimizer_groups;  // optimizer.groups; the first that selects a parameter has it
  LearningRateConfig learning_rate;
  DataConfig data;
  TaskConfig task;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoint;
  RunConfig run;

  bool operator==(const Config&) const = default;
};

}  // namespace megatron
