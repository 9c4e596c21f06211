#include "config/suggestions.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "config/schema.h"

namespace megatron {
namespace {

constexpr KeyAlias kAliases[] = {
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"depth", "model.layers"},
    {"n_embd", "model.hidden_size"},
    {"d_model", "model.hidden_size"},
    {"dim", "model.hidden_size"},
    {"num_attention_heads", "model.attention_heads"},
    {"num_heads", "model.attention_heads"},
    {"n_head", "model.attention_heads"},
    {"n_heads", "model.attention_heads"},
    {"head_dim", "model.head_size"},
    {"kv_channels", "model.head_size"},
    {"sliding_window", "model.attention_window"},
    {"window_size", "model.attention_window"},
    {"use_parallel_residual", "model.residual"},
    {"parallel_attn", "model.residual"},
    {"add_qkv_bias", "model.bias"},
    {"num_query_groups", "model.query_groups"},
    {"num_key_value_heads", "model.query_groups"},
    {"n_kv_heads", "model.query_groups"},
    {"intermediate_size", "model.ffn_hidden_size"},
    {"n_inner", "model.ffn_hidden_size"},
    {"ffn_size", "model.ffn_hidden_size"},
    {"seq_length", "model.sequence_length"},
    {"seq_len", "model.sequence_length"},
    {"encoder_seq_length", "model.sequence_length"},
    {"max_seq_len", "model.sequence_length"},
    {"n_ctx", "model.sequence_length"},
    {"block_size", "model.sequence_length"},
    {"context_length", "model.sequence_length"},
    {"n_positions", "model.max_position_embeddings"},
    {"max_positions", "model.max_position_embeddings"},
    {"n_vocab", "model.vocab_size"},
    {"vocabulary_size", "model.vocab_size"},
    {"make_vocab_size_divisible_by", "model.vocab_multiple"},
    {"position_embedding_type", "model.position_embedding"},
    {"use_rotary_position_embeddings", "model.position_embedding"},
    {"rotary_percent", "model.rotary_fraction"},
    {"rotary_pct", "model.rotary_fraction"},
    {"partial_rotary_factor", "model.rotary_fraction"},
    {"rope_theta", "model.rotary_base"},
    {"rotary_emb_base", "model.rotary_base"},
    {"rotary_position_embeddings_theta", "model.rotary_base"},
    {"rope_scaling", "model.rotary_scaling"},
    {"use_rope_scaling", "model.rotary_scaling"},
    {"rope_scaling_factor", "model.rotary_scaling"},
    {"rotary_seq_len_interpolation_factor", "model.rotary_scaling"},
    {"use_alibi", "model.position_embedding"},
    {"no_position_embedding", "model.position_embedding"},
    {"qk_layernorm", "model.query_key_norm"},
    {"qk_norm", "model.query_key_norm"},
    {"use_qk_norm", "model.query_key_norm"},
    {"attention_head_type", "model.query_groups"},
    {"multi_query", "model.query_groups"},
    {"group_query_attention", "model.query_groups"},
    {"glu_activation", "model.activation"},
    {"openai_gelu", "model.activation"},
    {"hidden_act", "model.activation"},
    {"activation_function", "model.activation"},
    {"swiglu", "model.activation"},
    {"layernorm_epsilon", "model.norm_epsilon"},
    {"layer_norm_epsilon", "model.norm_epsilon"},
    {"layer_norm_eps", "model.norm_epsilon"},
    {"rms_norm_eps", "model.norm_epsilon"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"untie_embeddings_and_output_weights", "model.tie_embeddings"},
    {"disable_bias_linear", "model.bias"},
    {"attention_bias", "model.bias"},
    {"mlp_bias", "model.bias"},
    {"norm_eps", "model.norm_epsilon"},
    {"norm_type", "model.normalization"},
    {"add_bias_linear", "model.bias"},
    {"dropout", "model.hidden_dropout"},
    {"resid_pdrop", "model.hidden_dropout"},
    {"embd_pdrop", "model.hidden_dropout"},
    {"attn_pdrop", "model.attention_dropout"},
    {"init_method_std", "model.init_std"},
    {"initializer_range", "model.init_std"},
    {"model_type", "model.family"},
    {"tensor_model_parallel_size", "parallel.tensor"},
    {"tensor_parallel_size", "parallel.tensor"},
    {"model_parallel_size", "parallel.tensor"},
    {"tp_degree", "parallel.tensor"},
    {"tp_size", "parallel.tensor"},
    {"tp", "parallel.tensor"},
    {"pipeline_model_parallel_size", "parallel.pipeline"},
    {"pipeline_parallel_size", "parallel.pipeline"},
    {"pp_degree", "parallel.pipeline"},
    {"pp_size", "parallel.pipeline"},
    {"pp", "parallel.pipeline"},
    {"virtual_pipeline_model_parallel_size", "parallel.virtual_stages"},
    {"num_layers_per_virtual_pipeline_stage", "parallel.virtual_stages"},
    {"context_parallel_size", "parallel.context"},
    {"cp", "parallel.context"},
    {"expert_model_parallel_size", "parallel.expert"},
    {"moe_expert_parallel_size", "parallel.expert"},
    {"data_parallel_size", "parallel.data"},
    {"dp_degree", "parallel.data"},
    {"dp", "parallel.data"},
    {"sequence_parallelism", "parallel.sequence_parallel"},
    {"pipeline_schedule", "parallel.schedule"},
    {"overlap_grad_reduce", "parallel.overlap_gradients"},
    {"train_iters", "train.steps"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"exit_interval", "train.stop_after"},
    {"iterations", "train.steps"},
    {"train_samples", "train.samples"},
    {"train_tokens", "train.tokens"},
    {"num_train_epochs", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"batch_size", "train.global_batch_size"},
    {"train_batch_size", "train.global_batch_size"},
    {"gradient_accumulation_steps", "train.global_batch_size"},
    {"num_micro_batches", "train.global_batch_size"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
    {"per_device_train_batch_size", "train.micro_batch_size"},
    {"rampup_batch_size", "train.batch_ramp_up"},
    {"curriculum_learning", "train.curriculum"},
    {"eval_interval", "train.evaluate_every"},
    {"eval_steps", "train.evaluate_every"},
    {"eval_iters", "train.evaluate_steps"},
    {"check_weight_hash_across_dp_replicas_interval", "train.check_replicas_every"},
    {"fp16", "precision.compute"},
    {"bf16", "precision.compute"},
    {"dtype", "precision.compute"},
    {"mixed_precision", "precision.compute"},
    {"initial_scale_power", "precision.initial_loss_scale"},
    {"min_loss_scale", "precision.minimum_loss_scale"},
    {"hysteresis", "precision.loss_scale_hysteresis"},
    {"recompute_granularity", "recompute.mode"},
    {"recompute_activations", "recompute.mode"},
    {"checkpoint_activations", "recompute.mode"},
    {"gradient_checkpointing", "recompute.mode"},
    {"recompute_num_layers", "recompute.layers"},
    {"optim", "optimizer.name"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    {"adam_eps", "optimizer.epsilon"},
    {"adam_epsilon", "optimizer.epsilon"},
    {"eps", "optimizer.epsilon"},
    {"start_weight_decay", "optimizer.weight_decay"},
    {"end_weight_decay", "optimizer.weight_decay_end"},
    {"weight_decay_incr_style", "optimizer.weight_decay_schedule"},
    {"clip_grad", "optimizer.clip_grad_norm"},
    {"max_grad_norm", "optimizer.clip_grad_norm"},
    {"gradient_clipping", "optimizer.clip_grad_norm"},
    {"grad_clip", "optimizer.clip_grad_norm"},
    {"use_distributed_optimizer", "optimizer.distributed"},
    {"zero_stage", "optimizer.distributed"},
    {"lr", "learning_rate.peak"},
    {"max_lr", "learning_rate.peak"},
    {"min_lr", "learning_rate.minimum"},
    {"lr_warmup_iters", "learning_rate.warmup_steps"},
    {"lr_warmup_samples", "learning_rate.warmup_samples"},
    {"lr_warmup_fraction", "learning_rate.warmup_fraction"},
    {"warmup_ratio", "learning_rate.warmup_fraction"},
    {"lr_decay_style", "learning_rate.decay"},
    {"lr_scheduler_type", "learning_rate.decay"},
    {"lr_decay_iters", "learning_rate.decay_steps"},
    {"lr_decay_samples", "learning_rate.decay_samples"},
    {"lr_warmup_tokens", "learning_rate.warmup_tokens"},
    {"lr_decay_tokens", "learning_rate.decay_tokens"},
    {"lr_wsd_decay_style", "learning_rate.wsd_style"},
    {"lr_wsd_decay_iters", "learning_rate.wsd_decay_steps"},
    {"lr_wsd_decay_samples", "learning_rate.wsd_decay_samples"},
    {"data_path", "data.train"},
    {"train_data_path", "data.train"},
    {"valid_data_path", "data.validation"},
    {"test_data_path", "data.test"},
    {"save_interval", "checkpoint.every_steps"},
    {"save_steps", "checkpoint.every_steps"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"resume_from_checkpoint", "checkpoint.resume"},
    {"finetune", "checkpoint.initialize_from"},
    {"finetune_from", "checkpoint.initialize_from"},
    {"async_save", "checkpoint.async"},
    {"save", "run.directory"},
    {"output_dir", "run.directory"},
    {"distributed_backend", "run.communication"},
    {"num_threads", "run.threads"},
    {"log_interval", "run.log_every"},
    {"logging_steps", "run.log_every"},
    {"exit_duration_in_mins", "run.max_minutes"},
};

// Names of values elsewhere that are nearer in spelling to another value here, or to none.
constexpr std::pair<std::string_view, std::string_view> kValueAliases[] = {
    {"gpu", "cuda"},         {"float32", "fp32"},   {"float16", "fp16"},
    {"half", "fp16"},        {"bfloat16", "bf16"},  {"silu", "swiglu"},
    {"gelu_new", "gelu"},    {"gelu_tanh", "gelu"}, {"layer_norm", "layernorm"},
    {"rms_norm", "rmsnorm"}, {"rotary", "rope"},    {"absolute", "learned"},
    {"adam", "adamw"},       {"zb", "zero_bubble"}};

std::string normalised(std::string_view word) {
  while (word.starts_with('-')) word.remove_prefix(1);
  std::string result;
  for (const char c : word) {
    result += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// Words further apart than this are not misspellings of each other.
int tolerance(std::string_view word) {
  return std::max(1, (static_cast<int>(word.size()) + 2) / 3);
}

std::string as_written_in(std::string_view table, std::string_view full_name) {
  const auto dot = full_name.find('.');
  return std::string(full_name.substr(0, dot) == table ? full_name.substr(dot + 1) : full_name);
}

}  // namespace

std::span<const KeyAlias> key_aliases() {
  return kAliases;
}

int edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t kLongest = 64;  // longer words are not misspelt keys, and cost quadratic time
  if (a.size() > kLongest || b.size() > kLongest) return static_cast<int>(std::max(a.size(), b.size()));
  const std::string x = normalised(a), y = normalised(b);
  std::vector<std::vector<int>> cost(x.size() + 1, std::vector<int>(y.size() + 1));
  for (std::size_t i = 0; i <= x.size(); ++i) {
    for (std::size_t j = 0; j <= y.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int substituted = cost[i - 1][j - 1] + (x[i - 1] == y[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, substituted});
      if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[x.size()][y.size()];
}

std::string suggest_key(std::string_view table, std::string_view name) {
  const std::string word = normalised(name);
  for (const Key& key : schema()) {  // the right name in the wrong table, and the wrong case or dashes
    if (key.name == word && key.table == table) return std::string(key.name);
  }
  // Names that several tables have (name, layers) are not looked for elsewhere before the aliases are.
  for (const KeyAlias& alias : kAliases) {
    if (alias.theirs == word) return as_written_in(table, alias.ours);
  }
  std::string best;
  int best_distance = tolerance(word) + 1;
  const auto consider = [&](const Key& key, int penalty) {
    const int distance = edit_distance(word, key.name) + penalty;
    if (distance < best_distance) {
      best_distance = distance;
      best = as_written_in(table, key.full_name());
    }
  };
  for (const Key& key : schema()) {
    if (key.table == table) consider(key, 0);
  }
  for (const Key& key : schema()) {
    if (key.table != table) consider(key, key.name == word ? 0 : 1);
  }
  return best;
}

std::string suggest_table(std::string_view name) {
  std::vector<std::string> names;
  for (const TableDescription& table : schema_tables()) names.emplace_back(table.name);
  return suggest_choice(name, names);
}

std::string suggest_choice(std::string_view word, std::span<const std::string> choices) {
  for (const auto& [theirs, ours] : kValueAliases) {
    if (normalised(word) != theirs) continue;
    if (std::find(choices.begin(), choices.end(), ours) != choices.end()) return std::string(ours);
  }
  std::string best;
  int best_distance = tolerance(word) + 1;
  for (const std::string& choice : choices) {
    const int distance = edit_distance(word, choice);
    if (distance < best_distance) {
      best_distance = distance;
      best = choice;
    }
  }
  return best;
}

}  // namespace megatron
