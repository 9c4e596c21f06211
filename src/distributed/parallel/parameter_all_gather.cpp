#include "distributed/parallel/parameter_all_gather.h"

#include <exception>

#include "distributed/comm/meanings.h"

namespace megatron {

ParameterAllGather::ParameterAllGather(const ProcessGrid& grid, const ParameterStore& store)
    : grid_(grid), store_(store), gathers_(store.sharded() ? store.buckets().size() : 0) {}

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
  const Bucket whole = store_.buckets()[bucket];
  const FlatRange part = store_.part_of(bucket, shard());
  gathers_[bucket] = grid_.copies(whole.copies)
                         .start_all_gather(store_.values().slice(0, part.first, part.count),
                                           store_.values().slice(0, whole.first, whole.count),
                                           whole.copies == CopyGroup::experts ? kNewExpertWeights : kNewWeights);
  ++started_;
}

void ParameterAllGather::wait_for(std::int64_t end) {
  while (in_flight() && store_.buckets()[waited_for_].first < end) gathers_[waited_for_++].wait();
}

}  // namespace megatron
