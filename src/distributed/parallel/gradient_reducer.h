// GradientReducer: sums of gradients over the ranks that hold the same part of a parameter and each have a part of its
// gradient. Afterwards every one of them has the same gradient, bit for bit. In place in store.gradients().
#pragma once

#include <optional>
#include <vector>

#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// The copies come first, each bucket over those of its group, while the backward still runs if reduce_from() is called
/// (it runs against the order of declaration); then the other groups, in the order in which the constructor adds them.
/// The sums are the same numbers either way. With shards (distributed optimizer) each rank of the copies gets only the
/// sums for the shard that it updates, or all where parts are unequal: first those of its set of copies, then, where
/// there are several sets, of all. Layers' gradients that copies divide are summed within a set by a GradientRing
/// before: here over the sets and the other groups alone.
class GradientReducer {
 public:
  /// The store must be allocated; both must outlive the reducer.
  GradientReducer(const ProcessGrid& grid, const ParameterStore& store)
      : GradientReducer(grid, store, shard_at(grid.at(), grid.shape())) {}
  /// With the other groups' sums of what another of this rank's copies owns: for planning.
  GradientReducer(const ProcessGrid& grid, const ParameterStore& store, Shard shard);

  /// In the backward of a step's last micro-batch: nothing more is added to the gradients of this parameter, by its
  /// index, and of those declared after it. Starts the sums of the buckets that have no others, and moves along what is
  /// in flight.
  void reduce_from(int parameter);
  /// After the last backward: starts what was not, waits for all, and sums over the other groups. `scratch` holds the
  /// small ones packed together.
  void finish(Ops& ops, Arena& scratch);
  /// The sums over the other groups alone: for planning.
  void sum_other_groups(Ops& ops, Arena& scratch) const;

 private:
  // Gradients that this rank sums over a group after its copies: vectors are many and small, and travel packed
  // together; matrices are summed where they lie.
  struct Axis {
    Communicator& group;
    const Partial& said;
    std::vector<FlatRange> vectors = {}, matrices = {};
    std::int64_t vector_elements = 0;  // with those that other shards own: scratch is then the same for all

    void add(const ParameterStore& store, const Parameter& parameter, const std::vector<FlatRange>& parts);
    void sum(const ParameterStore& store, Ops& ops, Arena& scratch) const;
  };
  template <class Selects>
  void add_axis(Communicator& group, const Partial& said, const std::vector<FlatRange>& owned, const Selects& selects);

  bool has_parts(const Bucket& bucket) const { return store_.sharded() && bucket.equal_parts; }
  void sum_over_replicas();
  void start_over_replicas(std::size_t bucket);

  const ProcessGrid& grid_;
  const ParameterStore& store_;
  Shard shard_;
  std::vector<Pending> sums_;              // by bucket; started from the back
  std::size_t not_started_;                // a count from the first
  std::optional<std::size_t> within_set_;  // the bucket that is yet to be summed over the sets of copies
  std::vector<Axis> axes_;                 // groups of more than one rank, in the order of their sums
};

}  // namespace megatron
