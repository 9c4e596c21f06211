// ModelConfig: the tables [model] and [moe] of the input file. A part of Config.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/activations.h"
#include "base/core/named_rows.h"
#include "base/core/normalizations.h"
#include "config/schema/choices.h"

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
  std::int64_t head_chunks = 1;  // in which the rows of the logits are computed
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

}  // namespace megatron
