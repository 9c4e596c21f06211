// Normalisation with its parameters, LayerNorm or RMSNorm; works on outside rows (each rank its own under sequence
// parallelism).
#pragma once

#include <string>

#include "nn/context.h"
#include "nn/parameter_builder.h"

namespace megatron {

enum class NormKind {
  layer,            ///< a weight and a bias (Ba et al. 2016)
  root_mean_square  ///< a weight; nothing is subtracted (Zhang & Sennrich 2019)
};

struct NormSizes {
  std::int64_t hidden = 0;
  NormKind kind = NormKind::layer;
  double epsilon = 1e-5;
};

class Norm {
 public:
  struct Saved {
    ConstTensor x;      ///< forward's input, kept by the caller until backward
    Tensor mean, rstd;  ///< f32 [n]; mean absent without subtraction
  };

  /// Declares NAME.weight (ones) and, of a LayerNorm, NAME.bias (zeros).
  Norm(ParameterBuilder& builder, const std::string& name, const NormSizes& sizes);

  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;  ///< sets y
  /// dx = gradient through the norm + residual_gradient (optional); may alias either. Adds the parameters' gradients.
  void backward(Context& context, ConstTensor dy, const Saved& saved, ConstTensor residual_gradient, Tensor dx) const;

 private:
  const ParameterStore* store_;
  NormSizes sizes_;
  int weight_, bias_;  // bias_ of a LayerNorm
};

}  // namespace megatron
