// WeightRing: where the copies divide layers' weights among them (optimizer.share = "weights"; stage 3 of Rajbhandari
// et al. 2020). A pass that comes to a layer has its values gathered into one of the ring's few buffers, under the work
// of the layer before. Used by ParameterAllGather, which knows when values are new; knows no layers but their numbers.
#pragma once

#include <vector>

#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// A layer's values stay in its buffer until another layer needs that: those of the last layers from a forward to its
/// backward, those of the first from a backward to the next forward (ShareTraffic::gathers() counts). All copies must
/// come to the same layers in the same order.
class WeightRing {
 public:
  /// The store must be allocated and divide weights; both must outlive the ring.
  WeightRing(const ProcessGrid& grid, const ParameterStore& store);
  WeightRing(const WeightRing&) = delete;
  WeightRing& operator=(const WeightRing&) = delete;
  ~WeightRing() = default;

  enum class Pass { forward, backward };
  /// Before a pass reads the values of this layer, by its unit: returns when they are in its buffer, and starts to
  /// gather those of the layer that the pass comes to next.
  void acquire(int unit, Pass pass);
  /// This rank's part of a bucket of a layer is new. Once for each, in the store's order: the first layers are gathered
  /// as soon as they are complete.
  void renew(const Bucket& bucket);
  /// Waits for what is in flight.
  void finish();
  bool in_flight() const;

 private:
  struct Held {
    int unit = kNone;                   // whose values the buffer has, or will have
    std::vector<Pending> pending = {};  // by bucket
    void wait();
  };
  Held& buffer_of(int unit) { return held_[static_cast<std::size_t>(unit) % held_.size()]; }
  void gather(int unit);

  const ProcessGrid& grid_;
  const ParameterStore& store_;
  Shard shard_;
  std::vector<Held> held_;
};

}  // namespace megatron
