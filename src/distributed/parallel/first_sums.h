// FirstSums: spares a step most of the zeros that its gradients would begin with. A matrix's gradient is a sum of
// products; the first one of a step is set in its place, the others are added.
//
// Knows which gradients have begun, of one store. Where copies divide layers' gradients, all are set to 0.
#pragma once

#include <vector>

#include "distributed/parallel/parameter.h"

namespace megatron {

class FirstSums {
 public:
  /// The store must be allocated and outlive this. Spares parameters whose gradients come from products alone.
  explicit FirstSums(const ParameterStore& store);

  /// At the start of a step: sets all gradients to 0 but those that are spared.
  void begin(Ops& ops);
  /// Whether the caller is to set this gradient: all of it is spared, and nothing was added in this step. Otherwise it
  /// is to be added to; what of it was spared is set to 0 first. `gradient`: a view of store.gradients(), contiguous.
  bool take(ConstTensor gradient, Ops& ops);
  /// When nothing more is added to this parameter, by its index, and to those declared after it: sets the gradients to
  /// 0 that nothing was added to.
  void finish_from(int parameter, Ops& ops);

 private:
  struct Spared {
    FlatRange range;
    int parameter;
    bool waits = false;  ///< nothing was set or added yet in this step
  };
  void clear(Spared& one, Ops& ops);

  const ParameterStore& store_;
  std::vector<Spared> spared_;      // in the buffer's order
  std::vector<FlatRange> cleared_;  // all between them
};

}  // namespace megatron
