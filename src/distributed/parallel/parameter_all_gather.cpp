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
  const Bucket& whole = store_.buckets()[bucket];
  Communicator& copies = grid_.copies(whole.copies);
  const bool experts = whole.copies == CopyGroup::experts;
  const auto values = [&](const FlatRange& range) { return store_.values().slice(0, range.first, range.count); };
  std::vector<Pending>& pending = gathers_[bucket];
  if (whole.equal_parts) {
    pending.push_back(copies.start_all_gather(values(store_.part_of(bucket, shard())), values(whole),
                                              experts ? kNewExpertWeights : kNewWeights));
  } else {
    for (std::size_t owner = 0; owner < whole.owned.size(); ++owner) {
      const FlatRange& range = whole.owned[owner];
      if (range.count == 0) continue;
      pending.push_back(copies.start_broadcast(values(range), static_cast<int>(owner),
                                               experts ? kOwnersExpertWeights : kOwnersWeights));
    }
  }
  ++started_;
}

void ParameterAllGather::wait_for(int parameter) {
  while (in_flight() && store_.buckets()[waited_for_].first_parameter <= parameter) {
    std::vector<Pending>& pending = gathers_[waited_for_++];
    for (Pending& one : pending) one.wait();
    pending.clear();
  }
}

}  // namespace megatron
