// Layer normalisation with its two parameters; works on outside rows (each rank its own under sequence parallelism).
#pragma once

#include <string>

#include "nn/context.h"
#include "nn/declare.h"

namespace megatron {

class LayerNorm {
 public:
  struct Saved {
    ConstTensor x;      ///< forward's input, kept by the caller until backward
    Tensor mean, rstd;  ///< f32 [n]
  };

  /// Declares NAME.weight (ones) and NAME.bias (zeros).
  LayerNorm(Declare& declare, const std::string& name, std::int64_t hidden, double epsilon);

  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;  ///< sets y
  /// dx = gradient through the norm + residual_gradient (optional); may alias either. Adds the parameters' gradients.
  void backward(Context& context, ConstTensor dy, const Saved& saved, ConstTensor residual_gradient, Tensor dx) const;

 private:
  const ParameterStore* store_;
  int weight_, bias_;
  float epsilon_;
};

}  // namespace megatron
