#include "config/schema/suggestions.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "config/schema/megatron_flags.h"
#include "config/schema/schema.h"

namespace megatron {
namespace {

// Next to Megatron-LM's flags, which megatron_flags.h has.
constexpr KeyAlias kAliases[] = {
    {"num_hidden_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"depth", "model.layers"},
    {"n_embd", "model.hidden_size"},
    {"d_model", "model.hidden_size"},
    {"dim", "model.hidden_size"},
    {"num_heads", "model.attention_heads"},
    {"n_head", "model.attention_heads"},
    {"n_heads", "model.attention_heads"},
    {"head_dim", "model.head_size"},
    {"sliding_window", "model.attention_window"},
    {"use_parallel_residual", "model.residual"},
    {"parallel_attn", "model.residual"},
    {"n_kv_heads", "model.query_groups"},
    {"intermediate_size", "model.ffn_hidden_size"},
    {"n_inner", "model.ffn_hidden_size"},
    {"ffn_size", "model.ffn_hidden_size"},
    {"seq_len", "model.sequence_length"},
    {"max_seq_len", "model.sequence_length"},
    {"n_ctx", "model.sequence_length"},
    {"block_size", "model.sequence_length"},
    {"context_length", "model.sequence_length"},
    {"n_positions", "model.max_position_embeddings"},
    {"max_positions", "model.max_position_embeddings"},
    {"n_vocab", "model.vocab_size"},
    {"vocabulary_size", "model.vocab_size"},
    {"rotary_pct", "model.rotary_fraction"},
    {"partial_rotary_factor", "model.rotary_fraction"},
    {"rope_theta", "model.rotary_base"},
    {"rotary_emb_base", "model.rotary_base"},
    {"rope_scaling", "model.rotary_scaling"},
    {"rope_scaling_factor", "model.rotary_scaling"},
    {"use_alibi", "model.position_embedding"},
    {"qk_norm", "model.query_key_norm"},
    {"use_qk_norm", "model.query_key_norm"},
    {"attn_logit_softcapping", "model.attention_softcap"},
    {"attn_logits_soft_cap", "model.attention_softcap"},
    {"multi_query", "model.query_groups"},
    {"hidden_act", "model.activation"},
    {"activation_function", "model.activation"},
    {"layer_norm_epsilon", "model.norm_epsilon"},
    {"layer_norm_eps", "model.norm_epsilon"},
    {"rms_norm_eps", "model.norm_epsilon"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"attention_bias", "model.bias"},
    {"mlp_bias", "model.bias"},
    {"norm_eps", "model.norm_epsilon"},
    {"norm_type", "model.normalization"},
    {"add_bias_linear", "model.bias"},
    {"dropout", "model.hidden_dropout"},
    {"resid_pdrop", "model.hidden_dropout"},
    {"embd_pdrop", "model.hidden_dropout"},
    {"attn_pdrop", "model.attention_dropout"},
    {"initializer_range", "model.init_std"},
    {"tensor_parallel_size", "parallel.tensor"},
    {"tp_degree", "parallel.tensor"},
    {"tp_size", "parallel.tensor"},
    {"tp", "parallel.tensor"},
    {"pipeline_parallel_size", "parallel.pipeline"},
    {"pp_degree", "parallel.pipeline"},
    {"pp_size", "parallel.pipeline"},
    {"pp", "parallel.pipeline"},
    {"virtual_pipeline_model_parallel_size", "parallel.virtual_stages"},
    {"cp", "parallel.context"},
    {"data_parallel_size", "parallel.data"},
    {"dp_degree", "parallel.data"},
    {"dp", "parallel.data"},
    {"sequence_parallelism", "parallel.sequence_parallel"},
    {"pipeline_schedule", "parallel.schedule"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"iterations", "train.steps"},
    {"max_iters", "train.steps"},
    {"out_dir", "run.directory"},
    {"valid_data", "data.validation"},
    {"num_train_epochs", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"train_batch_size", "train.global_batch_size"},
    {"gradient_accumulation_steps", "train.global_batch_size"},
    {"num_micro_batches", "train.global_batch_size"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
    {"per_device_train_batch_size", "train.micro_batch_size"},
    {"eval_steps", "train.evaluate_every"},
    {"eval_on_start", "train.evaluate_at_start"},
    {"check_weight_hash_across_dp_replicas_interval", "train.check_replicas_every"},
    {"dtype", "precision.compute"},
    {"mixed_precision", "precision.compute"},
    {"initial_scale_power", "precision.initial_loss_scale"},
    {"gradient_checkpointing", "recompute.mode"},
    {"optim", "optimizer.name"},
    {"param_groups", "optimizer.groups"},
    {"mup", "optimizer.scaling"},
    {"mup_base_width", "model.base_hidden_size"},
    {"parameter_groups", "optimizer.groups"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    {"adam_epsilon", "optimizer.epsilon"},
    {"eps", "optimizer.epsilon"},
    {"max_grad_norm", "optimizer.clip_grad_norm"},
    {"gradient_clipping", "optimizer.clip_grad_norm"},
    {"grad_clip", "optimizer.clip_grad_norm"},
    {"max_lr", "learning_rate.peak"},
    {"warmup_ratio", "learning_rate.warmup_fraction"},
    {"lr_scheduler_type", "learning_rate.decay"},
    {"save_steps", "checkpoint.every_steps"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"load_best_model_at_end", "checkpoint.keep_best"},
    {"consumed_train_samples", "checkpoint.consumed_samples"},
    {"resume_from_checkpoint", "checkpoint.resume"},
    {"output_dir", "run.directory"},
    {"num_threads", "run.threads"},
    {"logging_steps", "run.log_every"},
};

// Names of values elsewhere that are nearer in spelling to another value here, or to none.
constexpr std::pair<std::string_view, std::string_view> kValueAliases[] = {
    {"gpu", "cuda"},         {"float32", "fp32"},   {"float16", "fp16"},
    {"half", "fp16"},        {"bfloat16", "bf16"},  {"silu", "swiglu"},
    {"gelu_new", "gelu"},    {"gelu_tanh", "gelu"}, {"layer_norm", "layernorm"},
    {"rms_norm", "rmsnorm"}, {"rotary", "rope"},    {"absolute", "learned"},
    {"adam", "adamw"},       {"zb", "zero_bubble"}};

std::string word_with_underscores(std::string_view word) {
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
  const std::string x = word_with_underscores(a), y = word_with_underscores(b);
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
  const std::string word = word_with_underscores(name);
  for (const Key& key : schema()) {  // the right name in the wrong table, and the wrong case or dashes
    if (key.name == word && key.table == table) return std::string(key.name);
  }
  // Names that several tables have (name, layers) are not looked for elsewhere before the aliases are.
  if (const MegatronFlag* flag = find_megatron_flag("--" + word); flag != nullptr && !flag->key.empty()) {
    return as_written_in(table, flag->key);
  }
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
    if (word_with_underscores(word) != theirs) continue;
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
