// Self-attention inside the tensor region: query, key and value by one matmul, blocked attention over this rank's
// heads, and the row-parallel output projection. Bias and dropout of the output belong to the block.
//
// Query heads share keys and values in groups (Ainslie et al. 2023; one group: Shazeer 2019). A rank holds the groups
// of its query heads: where there are fewer groups than ranks, neighbours hold the same one, each has the gradient that
// comes from its own queries, and the parameters' are summed over them.
#pragma once

#include <string>
#include <vector>

#include "models/attention/attention_exchange.h"
#include "models/layers/linear.h"

namespace megatron {

struct AttentionSizes {
  std::int64_t hidden = 0, heads = 0, groups = 0, head_size = 0;  ///< the whole model's
  bool bias = true, output_bias = true;                           ///< for query, key and value; for the output
  bool causal = true;          ///< a query sees no later position; else all up to its sample's length
  std::int64_t window = 0;     ///< positions that a query sees, its own included; 0: all before it
  bool alibi = false;          ///< scores fall with the distance, by a slope of each head (Press et al. 2022)
  int distance_table = kNone;  ///< declared by the model: a learned bias of scores by distance (Raffel et al. 2020)
  DistanceBuckets distance_buckets = {};
  bool scaled = true;                           ///< scores are divided by √head_size
  double scale_factor = 1;                      ///< another factor of scores
  double softcap = 0;                           ///< bound of scores, before a bias is added (Gemma 2); 0: none
  std::vector<float> inverse_frequencies = {};  ///< for rotations of queries and keys (Su et al. 2021); empty: none
  bool query_key_norm = false;                  ///< RMSNorm of each query and key head before that (Henry et al. 2020)
  double norm_epsilon = 1e-5;                   ///< that norm's
  bool keeps_norms = true;                      ///< false: backward normalises queries and keys again
  double dropout = 0;
  double deviation = 0.02, output_deviation = 0.02;  ///< the initial weights'
};

/// Factor that scores are multiplied with.
float attention_scale(const AttentionSizes& sizes);
/// Declares NAME.output.{weight,bias}: the projection of all heads' results.
RowParallelLinear declare_attention_output(ParameterBuilder& builder, const std::string& name,
                                           const AttentionSizes& sizes);

class Attention {
 public:
  struct Saved {
    ConstTensor x;  ///< [s(/t), b, h]
    Tensor qkv;     ///< [s, b, (a/t + 2 groups here) d]: query, key, value side by side, biases added,
                    ///< rotated if they are not normalised before
    Tensor normed;  ///< [s, b, (a/t + groups here) d]: query and key, normalised and rotated; absent without norms; if
                    ///< not kept, of no use after forward
    Tensor query_rstd, key_rstd;  ///< f32 [s b heads]
    Tensor out;                   ///< [s, b, a/t d]
    Tensor log_sum_exp;           ///< f32 [b, a/t, s]
    SavedExchange exchange;       ///< between context ranks; may have taken the memory of qkv
  };

  /// Declares NAME.{query,key,value,output}.weight, with biases .bias, and NAME.{query,key}_norm.weight. `layer` is the
  /// global index (of the dropout masks).
  Attention(ParameterBuilder& builder, const std::string& name, const AttentionSizes& sizes, std::int64_t layer);

  const RowParallelLinear& output() const { return output_; }

  /// Memory in `arena` for keys and values of this rank's groups.
  KeyValueCache::Layer make_cache(Arena& arena, std::int64_t capacity, std::int64_t samples, DType type) const {
    return KeyValueCache::make_layer(arena, capacity, samples, local_groups_, sizes_.head_size, type);
  }

  /// Sets y [s(/t), b, h], no bias. With context.cache keys and values are added to it, and queries see all of it.
  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;
  /// Sets dx. Leaves `qkv` to context.weight_gradients, which may overwrite it.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  /// Query, key and value in what lies side by side: [s, b, heads here, d].
  struct Parts {
    Tensor query, key, value;
  };
  Parts parts(Tensor qkv) const;
  /// Tensors that attention itself reads: those of `saved`, with the normalised ones if there are such.
  Parts inputs(const Saved& saved) const;
  /// Turns the query and key that a tensor begins with to their positions, or gradients back.
  void rotate(Context& context, Tensor query_and_key, bool inverse) const;
  /// Sets the normalised query and key in `normed` and their statistics, in saved memory.
  void normalise(Context& context, const Saved& saved) const;
  Tensor allocate_normed(Context& context, Arena& arena) const;
  void normalise_back(Context& context, const Saved& saved, const Parts& gradient) const;
  AttentionMask mask(const Context& context) const;
  Tensor distance_gradient() const;  ///< absent where there is no such bias
  /// Adds the pass's keys and values to the cache; `in` has those that queries see afterwards.
  void append(Context& context, Parts& in) const;

  const ParameterStore* store_;
  AttentionSizes sizes_;
  std::int64_t layer_, local_heads_, local_groups_, first_head_;
  int slopes_, frequencies_;   // constants' indices; kNone
  int query_norm_, key_norm_;  // weights' indices; kNone
  ColumnParallelLinear qkv_;
  RowParallelLinear output_;
};

}  // namespace megatron
