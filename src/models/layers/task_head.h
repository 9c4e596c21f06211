// TaskHead: the end of a model that is fine-tuned to tell classes apart: the final norm of a pre-norm model, and a
// class of each sample (pooled_classifier.h). Stands in the place of the heads of pretraining.
#pragma once

#include <optional>

#include "models/layers/norm.h"
#include "models/layers/pooled_classifier.h"

namespace megatron {

struct TaskHeadSizes {
  NormSizes norm;
  bool final_norm = true;
  PooledClassifierSizes classifier;
};

class TaskHead {
 public:
  struct Saved {
    Norm::Saved final_norm;
    PooledClassifier::Saved classifier;
  };

  /// Declares final_norm.…, pooler.… and what sizes.classifier names.
  TaskHead(ParameterBuilder& builder, const TaskHeadSizes& sizes);

  /// As of PooledClassifier.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  /// Sets dx, adds the parameters' gradients.
  void backward(Context& context, Saved& saved, Tensor dx) const;

 private:
  const ParameterStore* store_;
  std::optional<Norm> final_norm_;
  PooledClassifier classifier_;
  int last_parameter_;
};

}  // namespace megatron
