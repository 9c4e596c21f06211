// A communicator that knows of each group which gathers are started and not waited for, and how many other collectives
// were started after such: a transport that does a group's collectives in their order finishes the gathers first.
#pragma once

#include <set>

#include "distributed/comm/communicator_decorator.h"

namespace megatron::test {

class WatchingCommunicator final : public CommunicatorDecorator {
 public:
  /// `inner` must outlive it. Groups split off it watch too.
  explicit WatchingCommunicator(Communicator& inner) : CommunicatorDecorator(inner) {}
  explicit WatchingCommunicator(std::unique_ptr<Communicator> inner) : CommunicatorDecorator(std::move(inner)) {}

  int gathers_in_flight() const { return static_cast<int>(gathers_.size()); }
  int started_after_gathers() const { return behind_; }

 protected:
  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    note_other();
    return CommunicatorDecorator::do_all_reduce(values, reduce);
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    const std::uint64_t ticket = CommunicatorDecorator::do_all_gather(part, whole);
    gathers_.insert(ticket);
    return ticket;
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    note_other();
    return CommunicatorDecorator::do_reduce_scatter(whole, part);
  }
  std::uint64_t do_broadcast(Tensor values, int root) override {
    note_other();
    return CommunicatorDecorator::do_broadcast(values, root);
  }
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override {
    note_other();
    return CommunicatorDecorator::do_all_to_all(send, receive);
  }
  void finish(std::uint64_t ticket) override {
    CommunicatorDecorator::finish(ticket);
    gathers_.erase(ticket);
  }
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<WatchingCommunicator>(std::move(inner));
  }

 private:
  void note_other() {
    if (!gathers_.empty()) ++behind_;
  }

  std::set<std::uint64_t> gathers_;
  int behind_ = 0;
};

}  // namespace megatron::test
