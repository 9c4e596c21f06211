// GradientRing: where the copies divide layers' gradients among them (optimizer.share = "gradients" or "weights"). A
// layer's backward of a micro-batch makes them in one of the ring's few buffers. Then they are reduce-scattered, under
// the backward of the layers below, and each copy adds the sums of its part to its own. All layers' gradients never
// exist at once.
#pragma once

#include <functional>
#include <vector>

#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// All copies must play the same layers in the same order. The sums over the other groups are a GradientReducer's.
class GradientRing {
 public:
  /// Given the first parameter of a layer whose gradients are complete for this micro-batch.
  using Look = std::function<void(const DividedLayer& layer)>;

  /// The store must be allocated and divide gradients; both must outlive the ring.
  GradientRing(const ProcessGrid& grid, const ParameterStore& store);

  /// Before the backward of the layer that has this parameter: gives it its buffer, set to 0, when the sums that are in
  /// flight from there are in their place.
  void begin(int parameter, Ops& ops);
  /// After it: nothing more is added to its gradients of this micro-batch. Starts their sums over the copies.
  void end(int parameter);
  /// After the last backward: adds all that is in flight to the sums.
  void finish(Ops& ops);
  /// From now on end() calls `look` and sums nothing up; without one, it sums again.
  void look_instead(Look look) { look_ = std::move(look); }

 private:
  const DividedLayer& layer_of(int parameter) const;
  void settle(const DividedLayer& layer, Ops& ops);

  const ProcessGrid& grid_;
  const ParameterStore& store_;
  Shard shard_;
  std::vector<Pending> sums_;                   // by bucket
  std::vector<const DividedLayer*> in_flight_;  // by buffer; null: nothing
  Look look_;
};

}  // namespace megatron
