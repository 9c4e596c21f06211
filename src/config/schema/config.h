// Config: one struct per table of the input file. Filled, checked and printed by schema.h; read by all layers above.
//
// After `resolve` (resolve.h) every derived value is set, so that no default is computed a second time, and lengths
// are in one normal form: the run in train.steps, warm-up and decay in samples (or, where the learning rate counts
// tokens, in tokens); the other ways to say them are zero again.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/dtype.h"
#include "base/core/evaluation_tasks.h"
#include "base/core/named_rows.h"
#include "base/core/shares.h"
#include "config/schema/choices.h"
#include "config/schema/model_config.h"
#include "config/schema/schedules.h"
#include "config/schema/update_rules.h"

namespace megatron {

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

/// Losses by name; training/datasets/losses.cpp has a row for each, with its function.
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

/// Rows of kRecomputeParts, each given or not.
struct RecomputeParts {
  std::array<bool, kRecomputeParts.size()> given = {};

  RecomputeParts() = default;
  RecomputeParts(std::initializer_list<RecomputePart> parts) {
    for (const RecomputePart part : parts) given[static_cast<std::size_t>(part)] = true;
  }
  bool has(RecomputePart part) const { return given[static_cast<std::size_t>(part)]; }
  bool empty() const { return *this == RecomputeParts(); }
  std::vector<std::string> names() const {  // in the order of the rows
    std::vector<std::string> names;
    for (const RecomputePartChoice& row : kRecomputeParts) {
      if (has(row.kind)) names.emplace_back(row.name);
    }
    return names;
  }

  bool operator==(const RecomputeParts&) const = default;
};

struct RecomputeConfig {
  std::string mode = "none";
  std::int64_t layers = 0;    // in a model chunk, from its first on; 0: all
  RecomputeParts parts = {};  // that "selective" makes again; none: those that cost no product

  RecomputeMode kind() const { return kind_of(kRecomputeModes, mode); }
  /// Parts of every layer that are made again.
  RecomputeParts parts_made() const {
    if (kind() != RecomputeMode::selective) return {};
    return parts.empty() ? RecomputeParts{RecomputePart::norms, RecomputePart::activations} : parts;
  }
  /// How many of a model chunk's `chunk_layers` layers are recomputed: the first ones.
  std::int64_t of_chunk(std::int64_t chunk_layers) const {
    if (kind() != RecomputeMode::full) return 0;
    return layers == 0 || layers > chunk_layers ? chunk_layers : layers;
  }

  bool operator==(const RecomputeConfig&) const = default;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double beta1 = 0.9, beta2 = 0.999;    // betas = [beta1, beta2]
  std::optional<double> momentum = {};  // absent: the rule's own
  bool nesterov = true;
  std::string muon_scale = "spectral";
  double adamw_learning_rate_factor = 1;
  double epsilon = 1e-8, weight_decay = 0.01;
  std::string weight_decay_schedule = "constant";
  std::optional<double> weight_decay_end = {};  // for a schedule that is not constant
  double clip_grad_norm = 1.0;
  std::string scaling = "none";
  std::string moments_dtype = "fp32";
  std::string share = "none";
  std::int64_t share_within = 0;  // copies; 0: all
  std::string offload = "none";
  double offload_fraction = 1;
  std::string offload_folder = {};  // empty: run.directory

  double momentum_or_default() const { return momentum.value_or(row_named(kUpdateRules, name).momentum); }
  const ShareRow& shares() const { return row_named(kShares, share); }
  /// Sets of copies that each have all of what is shared.
  std::int64_t sets_that_share(std::int64_t copies) const {
    return shares().state && share_within > 0 ? copies / share_within : 1;
  }
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
