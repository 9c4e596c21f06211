#include "distributed/parallel/parameter_all_gather.h"

#include <exception>

#include "distributed/comm/meanings.h"

namespace megatron {

ParameterAllGather::ParameterAllGather(const ProcessGrid& grid, const ParameterStore& store)
    : grid_(grid), store_(store), gathers_(store.sharded() ? store.buckets().size() : 0) {
  if (store.divides_weights()) ring_.emplace(grid, store);
}

ParameterAllGather::~ParameterAllGather() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    finish();
  } catch (...) {  // the transport's end was reported by an earlier wait
  }
}

void ParameterAllGather::start(std::size_t bucket) {
  if (started_ == gathers_.size()) {
    internal_check(!in_flight(), "a round of gathers is started before the last one is finished");
    started_ = waited_for_ = 0;
  }
  internal_check(bucket == started_, "buckets are gathered in their order", bucket, started_);
  const Bucket& whole = store_.buckets()[bucket];
  Communicator& shards = grid_.shards(whole.copies);
  const bool experts = whole.copies == CopyGroup::experts;
  const auto values = [&](const FlatRange& range) { return store_.read_values(range); };
  std::vector<Pending>& pending = gathers_[bucket];
  if (store_.divides_weights_of(whole)) {
    ring_->renew(whole);
  } else if (whole.equal_parts) {
    pending.push_back(shards.start_all_gather(values(store_.part_of(bucket, shard())), values(whole),
                                              experts ? kNewExpertWeights : kNewWeights));
  } else {
    for (std::size_t owner = 0; owner < whole.owned.size(); ++owner) {
      const FlatRange& range = whole.owned[owner];
      if (range.count == 0) continue;
      pending.push_back(shards.start_broadcast(values(range), static_cast<int>(owner),
                                               experts ? kOwnersExpertWeights : kOwnersWeights));
    }
  }
  ++started_;
}

void ParameterAllGather::wait_before(int parameter) {
  while (waited_for_ < started_ && store_.buckets()[waited_for_].first_parameter <= parameter) {
    std::vector<Pending>& pending = gathers_[waited_for_++];
    for (Pending& one : pending) one.wait();
    pending.clear();
  }
}

void ParameterAllGather::acquire(int parameter, WeightRing::Pass pass) {
  const int unit = store_.at(parameter).unit;
  if (ring_ && unit != kNone) ring_->acquire(unit, pass);
}

void ParameterAllGather::wait_for(int parameter) {
  wait_before(parameter);
  acquire(parameter, WeightRing::Pass::forward);
}

void ParameterAllGather::wait_for_backward(int parameter) {
  acquire(parameter, WeightRing::Pass::backward);
}

void ParameterAllGather::finish() {
  wait_before(static_cast<int>(store_.all().size()));
  if (ring_) ring_->finish();
}

}  // namespace megatron
