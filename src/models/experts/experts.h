// The experts of one layer that this rank holds (Shazeer et al. 2017): feed-forward parts of one shape, whose inner
// width is split over the tensor ranks as in Mlp. Experts are separate parameters, so a checkpoint can be loaded on any
// number of expert ranks. No communication: the caller gathers rows and sums shares (moe.h).
#pragma once

#include <string>
#include <vector>

#include "models/layers/mlp.h"

namespace megatron {

class Experts {
 public:
  /// Declares NAME.K.{gate,up,down}.weight and, with biases, .bias, of experts first … first + count - 1.
  Experts(ParameterBuilder& builder, const std::string& name, const MlpSizes& sizes, std::int64_t first,
          std::int64_t count);

  std::int64_t count() const { return static_cast<std::int64_t>(parts_.size()); }
  std::int64_t local_ffn() const;  ///< f/t
  std::int64_t local_up() const;   ///< columns of `up`: 2 f/t with a gate

  KeptInner kept() const { return sizes_.kept; }

  /// The part of forward() for local expert `index` that sets up and activated.
  void activate(Context& context, std::int64_t index, ConstTensor x, Tensor up, Tensor activated) const;
  /// Sets activated again, of a forward's up.
  void activate_again(Context& context, std::int64_t index, ConstTensor up, Tensor activated) const;
  /// Local expert `index`: x [rows, h] -> y [rows, h], this rank's share of the sum over tensor ranks. Sets up [rows,
  /// local_up()] and activated [rows, f/t], which backward reads.
  void forward(Context& context, std::int64_t index, ConstTensor x, Tensor up, Tensor activated, Tensor y) const;
  /// dy [rows, h] is whole; sets dx, this rank's share. dy, x and activated must live until the weight gradients have
  /// run; leaves `up` to them. Products that read what a forward does not keep run at once.
  void backward(Context& context, std::int64_t index, ConstTensor dy, ConstTensor x, Tensor up, ConstTensor activated,
                Tensor dx) const;

 private:
  /// Indices in the store; those of `up` are the first of as many adjacent records as there are.
  struct Part {
    int up = kNone, up_bias = kNone, down = kNone, down_bias = kNone;
  };
  ConstTensor up_weight(const Part& part) const;
  ConstTensor up_bias(const Part& part) const;

  const ParameterStore* store_;
  MlpSizes sizes_;
  int records_;          // that make `up`
  bool adds_down_bias_;  // one tensor rank does
  std::vector<Part> parts_;
};

}  // namespace megatron
