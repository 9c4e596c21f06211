// Normalisation with its parameters, of any kind; works on outside rows (each rank its own under sequence
// parallelism).
#pragma once

#include <string>

#include "models/layers/context.h"
#include "models/layers/parameter_builder.h"

namespace megatron {

struct NormSizes {
  std::int64_t hidden = 0;
  Normalization kind = Normalization::layer;
  double epsilon = 1e-5;
};

class Norm {
 public:
  struct Saved {
    ConstTensor x;      ///< forward's input, kept by the caller until backward
    Tensor mean, rstd;  ///< f32 [n]; mean absent where the kind is not centered
  };

  /// Declares NAME.weight (ones) and, if the kind has one, NAME.bias (zeros).
  Norm(ParameterBuilder& builder, const std::string& name, const NormSizes& sizes);

  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;  ///< sets y
  /// Sets y to the bits of a forward that has set `saved`.
  void again(Context& context, const Saved& saved, Tensor y) const;
  /// dx = gradient through the norm + residual_gradient (optional); may alias either. Adds the parameters' gradients.
  void backward(Context& context, ConstTensor dy, const Saved& saved, ConstTensor residual_gradient, Tensor dx) const;

 private:
  void normalise(Context& context, const Saved& saved, Tensor y) const;

  const ParameterStore* store_;
  NormSizes sizes_;
  int weight_, bias_;  // bias_ if the kind has one
};

}  // namespace megatron
