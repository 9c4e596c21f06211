// GradientReducer: sums of gradients over the ranks that hold copies of a parameter (`partial`, `kv_replicated`) and
// each have a part of its gradient. Afterwards every copy has the same gradient, bit for bit.
//
// Data axis first (bucket by bucket of the flat buffer), then the tensor group (norms of query and key heads; under
// sequence parallelism all norms, whole biases and the position table), then keys and values of fewer groups than
// tensor ranks over those that share them, then the tied embedding over the first and last stage. In place in
// store.gradients(). A backward runs against the order of declaration, so the buckets at the end of the buffer are
// complete first: calling reduce_from() starts their sums while the backward still runs. The sums are the
// same numbers with and without that.
//
// With a store that is cut into shards (distributed optimizer) each data rank gets the sums of its own part of every
// bucket, the same numbers again; the rest of its gradients is of no use afterwards. Other parts are other sums over
// the other groups: what a data rank does there is its own.
#pragma once

#include <vector>

#include "comm/process_grid.h"
#include "parallel/parameter.h"

namespace megatron {

class GradientReducer {
 public:
  /// The store must be allocated; both must outlive the reducer.
  GradientReducer(const ProcessGrid& grid, const ParameterStore& store)
      : GradientReducer(grid, store, grid.data().rank()) {}
  /// With the copies of what `data_rank` owns, who has the same other coordinates: for planning.
  GradientReducer(const ProcessGrid& grid, const ParameterStore& store, int data_rank);

  /// In the backward of a step's last micro-batch: nothing more is added to the gradients from this flat element on.
  /// Starts the sums of the buckets that lie there, and moves along what is in flight.
  void reduce_from(std::int64_t element);
  /// After the last backward: starts what was not, waits for all, and sums over the other groups. `scratch` holds the
  /// small ones packed together.
  void finish(Ops& ops, Arena& scratch);
  /// What of that is behind the data axis: for planning.
  void sum_copies(Ops& ops, Arena& scratch) const;

 private:
  // What this rank sums on over a group after its data axis: vectors are many and small, and travel packed together;
  // matrices are summed where they lie.
  struct Axis {
    Communicator& group;
    std::vector<FlatRange> vectors, matrices;
    std::int64_t vector_elements = 0;  // with those that other data ranks own: scratch is then the same for all

    void add(const Parameter& parameter, const std::vector<FlatRange>& parts);
    void sum(Tensor gradients, Ops& ops, Arena& scratch) const;
  };

  const ProcessGrid& grid_;
  const ParameterStore& store_;
  std::vector<Pending> sums_;  // by bucket; started from the back
  std::size_t not_started_;    // the first so many
  Axis tensor_, kv_replicas_, stages_;
};

}  // namespace megatron
