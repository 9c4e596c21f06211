// ParameterAllGather: the distributed optimizer's second half. Every rank of a bucket's copies updates its part of the
// bucket's values; here the parts are gathered, bucket by bucket in the order of the buffer, so that the values that a
// forward needs first come first. Parts that are not of one length are broadcast by their owners. Owns the gathers in
// flight, no memory of tensors.
#pragma once

#include <optional>
#include <vector>

#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"
#include "distributed/parallel/weight_ring.h"

namespace megatron {

/// A gather is started as soon as its bucket is updated and waited for only when a layer asks for its values
/// (wait_for), in the middle of the next forward: the work in between moves it along and does not wait for it. Nothing
/// else may read values of a sharded store without finish(), nor those of divided layers at all. With a store that is
/// not cut into shards nothing is ever in flight. Layers that copies divide are a WeightRing's: each pass has them
/// gathered.
///
/// A group's collectives are done in their order, so another collective of the copies would wait for all gathers. Hence
/// ranks decide between steps over the world (ProcessGrid::agree), and counts are summed over the control group.
class ParameterAllGather {
 public:
  /// The store must be allocated; both must outlive the gathers.
  ParameterAllGather(const ProcessGrid& grid, const ParameterStore& store);
  ParameterAllGather(const ParameterAllGather&) = delete;
  ParameterAllGather& operator=(const ParameterAllGather&) = delete;
  /// Waits for what is in flight, unless an exception unwinds.
  ~ParameterAllGather();

  const ProcessGrid& grid() const { return grid_; }
  Shard shard() const { return shard_at(grid_.at(), grid_.shape()); }  ///< the part that this rank updates

  /// This rank's part of a bucket is new. Once for each bucket of the store, in their order; the last round must be
  /// finished.
  void start(std::size_t bucket);
  /// Returns when a forward may read the values of this parameter, by its index, and of those declared before it. If
  /// copies divide weights, only the layer of this parameter is complete, not the layers before it.
  void wait_for(int parameter);
  /// Returns when a backward may read the values of this parameter's layer.
  void wait_for_backward(int parameter);
  void finish();
  bool in_flight() const { return waited_for_ < started_ || (ring_ && ring_->in_flight()); }
  /// Moves along what is in flight, of every copy group: they share their transport.
  void progress() const {
    if (in_flight()) grid_.copies().progress();
  }

 private:
  void wait_before(int parameter);
  void acquire(int parameter, WeightRing::Pass pass);

  const ProcessGrid& grid_;
  const ParameterStore& store_;
  std::optional<WeightRing> ring_;             // if copies divide weights
  std::vector<std::vector<Pending>> gathers_;  // by bucket: one, a broadcast for each owner, or none: the ring's
  std::size_t started_ = 0, waited_for_ = 0;   // numbers of gathers of this round, from the first
};

}  // namespace megatron
