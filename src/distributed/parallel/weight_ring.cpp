#include "distributed/parallel/weight_ring.h"

#include <algorithm>

#include "distributed/comm/meanings.h"

namespace megatron {

WeightRing::WeightRing(const ProcessGrid& grid, const ParameterStore& store)
    : grid_(grid),
      store_(store),
      shard_(shard_at(grid.at(), grid.shape())),
      held_(std::min(store.layers().size(), ParameterStore::kRingBuffers)) {
  internal_check(store.divides_weights(), "a ring of weights that copies do not divide");
}

void WeightRing::Held::wait() {
  for (Pending& one : pending) one.wait();
  pending.clear();
}

// Memory of a layer before the one at work, which nothing reads any more, is taken.
void WeightRing::gather(int unit) {
  Held& held = buffer_of(unit);
  if (held.unit == unit) return;
  held.wait();
  held.unit = unit;
  const DividedLayer& layer = store_.layers()[static_cast<std::size_t>(unit)];
  for (std::size_t i = layer.first_bucket; i < layer.first_bucket + layer.buckets; ++i) {
    const Bucket& whole = store_.buckets()[i];
    if (!store_.divides_weights_of(whole)) continue;
    held.pending.push_back(grid_.shards(whole.copies)
                               .start_all_gather(store_.values_of(store_.part_of(i, shard_)), store_.read_values(whole),
                                                 whole.copies == CopyGroup::experts ? kNewExpertWeights : kNewWeights));
  }
}

void WeightRing::acquire(int unit, Pass pass) {
  gather(unit);
  buffer_of(unit).wait();
  const int next = pass == Pass::forward ? unit + 1 : unit - 1;
  const bool exists = next >= 0 && next < static_cast<int>(store_.layers().size());
  if (exists && held_.size() > 1) gather(next);
}

void WeightRing::renew(const Bucket& bucket) {
  Held& held = buffer_of(bucket.unit);
  if (held.unit == bucket.unit) {
    held.wait();
    held.unit = kNone;
  }
  const DividedLayer& layer = store_.layers()[static_cast<std::size_t>(bucket.unit)];
  std::size_t last = layer.first_bucket + layer.buckets;
  while (!store_.divides_weights_of(store_.buckets()[last - 1])) --last;
  const bool complete = bucket.end() == store_.buckets()[last - 1].end();
  if (complete && static_cast<std::size_t>(bucket.unit) < held_.size()) gather(bucket.unit);
}

void WeightRing::finish() {
  for (Held& held : held_) held.wait();
}

bool WeightRing::in_flight() const {
  return std::any_of(held_.begin(), held_.end(), [](const Held& held) { return !held.pending.empty(); });
}

}  // namespace megatron
