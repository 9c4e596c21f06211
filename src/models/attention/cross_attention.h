// Attention of a decoder's rows to an encoder's output, inside the tensor region (Vaswani et al. 2017): the query is
// made from the layer's input by one matmul, keys and values from context.memory by another, and the output projection
// is row parallel as in self-attention. Every query sees all of the encoder's rows that are no padding. Bias and
// dropout of the output belong to the block. With context.cache keys and values are those that fill_cache() left there.
#pragma once

#include <string>

#include "models/attention/attention.h"

namespace megatron {

class CrossAttention {
 public:
  struct Saved {
    ConstTensor x, memory;  ///< [s(/t), b, h] of either stream
    Tensor query;           ///< [s, b, a/t d], bias added
    Tensor key_value;       ///< [s of the encoder, b, 2 groups here d]: key and value side by side, biases added; of
                            ///< context ranks, each its own rows'
    Tensor out;             ///< [s, b, a/t d]
    Tensor log_sum_exp;     ///< f32 [b, a/t, s]
  };

  /// Declares NAME.{query,key,value,output}.weight, with biases .bias. Of the sizes those of masks and positions are
  /// not read: neither plays a part here. `layer` is the global index (of the dropout masks).
  CrossAttention(ParameterBuilder& builder, const std::string& name, const AttentionSizes& sizes, std::int64_t layer);

  const RowParallelLinear& output() const { return output_; }

  /// Memory in `arena` for the keys and values of an encoder's output, of this rank's groups.
  KeyValueCache::Layer make_cache(Arena& arena, std::int64_t encoder_rows, std::int64_t samples, DType type) const {
    return KeyValueCache::make_layer(arena, encoder_rows, samples, local_groups_, sizes_.head_size, type);
  }
  /// Sets context.cache's keys and values of context.memory.states, [s of the encoder, b, h]; its offsets are 0.
  void fill_cache(Context& context) const;

  /// Sets y [s(/t), b, h], no bias. x and context.memory.states must live until backward.
  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;
  /// Sets dx and adds to context.memory.gradient. Leaves `query` and `key_value` to context.weight_gradients, which may
  /// overwrite them.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  /// Keys and values that lie side by side, [s, b, groups here, d] each.
  struct KeyValue {
    Tensor key, value;
  };
  KeyValue split(Tensor key_value) const;
  /// Sets `key_value`, [s of the encoder, b, 2 groups here d], in context.saved.
  KeyValue project_memory(Context& context, Tensor& key_value) const;
  /// Keys and values of the encoder's whole sequences: `key_value`, or those of all context ranks, in scratch.
  Tensor whole(Context& context, Tensor key_value) const;
  KeyValue cached(const CachePass& pass) const;
  AttentionMask mask(const Context& context) const;
  Dropout dropout(const Context& context) const;
  /// Sets dquery and dkey_value.
  void attend_back(Context& context, Tensor dout, const Saved& saved, Tensor dquery, Tensor dkey_value) const;
  void backward_projections(Context& context, Tensor dquery, Tensor dkey_value, const Saved& saved, Tensor dx) const;

  AttentionSizes sizes_;
  std::int64_t layer_, local_heads_, local_groups_, first_head_;
  ColumnParallelLinear query_, key_value_;
  RowParallelLinear output_;
};

}  // namespace megatron
