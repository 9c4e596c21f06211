// The two tensor-parallel matrices (Shoeybi et al. 2019): cut by output (column parallel) and cut by input (row
// parallel). Weights are [out, in] as everywhere in the field; y = x · Wᵀ.
//
// In a column-parallel backward the input's gather is under way while the input gradient is computed, and the input
// gradient's sum while the weight gradient is. context.weight_gradients decides when the weight gradient runs: dy and x
// must live until then.
#pragma once

#include "models/layers/as_matrix.h"
#include "models/layers/context.h"
#include "models/layers/parameter_builder.h"

namespace megatron {

/// Enters the tensor region: [s(/t), b, in] -> [s, b, out/t]. One weight record, or several adjacent ones of which one
/// matmul makes one output side by side.
class ColumnParallelLinear {
 public:
  /// `weight` and `bias` are the first of `records` adjacent parameters each; the latter may be kNone.
  ColumnParallelLinear(const ParameterStore& store, int weight, int bias, int records, std::int64_t in);

  std::int64_t local_out() const;
  bool has_bias() const { return bias_ != kNone; }
  ConstTensor bias() const;      ///< [out/t], absent if there is none
  Tensor bias_gradient() const;  ///< the same

  void forward(Context& context, ConstTensor x, Tensor y) const;  ///< sets y, with the bias
  /// Sets y = activation(x · Wᵀ + bias), and in `product` what RowParallelLinear's backward through it reads. With
  /// `again` Ops::activation_again() makes y once more.
  void forward(Context& context, ConstTensor x, Activation activation, Tensor product, Tensor y,
               bool again = false) const;
  /// Sets dx; hands the weight's gradient to context.weight_gradients and leaves the bias'. x is forward's input.
  void backward(Context& context, ConstTensor dy, ConstTensor x, Tensor dx) const;

 private:
  const ParameterStore* store_;
  int weight_, bias_, records_;
  std::int64_t in_;
};

/// Leaves the tensor region: [s, b, in/t] -> [s(/t), b, out], summed over tensor ranks, without bias.
class RowParallelLinear {
 public:
  RowParallelLinear(const ParameterStore& store, int weight, int bias);

  std::int64_t local_in() const { return store_->at(weight_).box.extent[1]; }
  ConstTensor bias() const;      ///< [out], absent if there is none
  Tensor bias_gradient() const;  ///< the same

  void forward(Context& context, ConstTensor x, Tensor y) const;  ///< sets y
  /// Sets dx ([s, b, in/t]); hands the weight's gradient to context.weight_gradients. x is forward's input.
  void backward(Context& context, ConstTensor dy, ConstTensor x, Tensor dx) const;
  /// The same through the activation that x is the result of: `through` says all but dy and the weight.
  void backward(Context& context, ConstTensor dy, ConstTensor x, LinearActivationBackwardArgs through) const;

 private:
  template <class InputGradient>
  void backward_by(Context& context, ConstTensor dy, ConstTensor x, const InputGradient& input_gradient) const;

  const ParameterStore* store_;
  int weight_, bias_;
};

/// The backward of a column-parallel product: sets dx = dy · weight summed over ranks, and hands the product to
/// context.weight_gradients.
void column_parallel_backward(Context& context, const WeightProduct& product, ConstTensor weight, Tensor dx);

}  // namespace megatron
