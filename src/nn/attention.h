// Self-attention inside the tensor region: query, key and value by one matmul, blocked attention over this rank's
// heads, and the row-parallel output projection. Bias and dropout of the output belong to the block.
#pragma once

#include <string>

#include "nn/linear.h"

namespace megatron {

struct AttentionSizes {
  std::int64_t hidden = 0, heads = 0;  ///< of the whole model
  double dropout = 0;
  double deviation = 0.02, output_deviation = 0.02;  ///< of the initial weights
};

class Attention {
 public:
  struct Saved {
    ConstTensor x;       ///< [s(/t), b, h]
    Tensor qkv;          ///< [s, b, 3 h/t]: query, key, value side by side, biases added
    Tensor out;          ///< [s, b, h/t]
    Tensor log_sum_exp;  ///< f32 [b, a/t, s]
  };

  /// Declares NAME.{query,key,value,output}.{weight,bias}. `layer` is the global index (of the dropout masks).
  Attention(Declare& declare, const std::string& name, const AttentionSizes& sizes, std::int64_t layer);

  const RowParallelLinear& output() const { return output_; }

  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;  ///< sets y [s(/t), b, h], no bias
  /// Sets dx. A weight gradient that is put off has its operand in place of `qkv`.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  ConstTensor heads(ConstTensor qkv, int which) const;  ///< query, key or value as [s, b, a/t, d]
  Tensor heads(Tensor qkv, int which) const;

  AttentionSizes sizes_;
  std::int64_t layer_, local_heads_, local_width_, first_head_;
  ColumnParallelLinear qkv_;
  RowParallelLinear output_;
};

}  // namespace megatron
