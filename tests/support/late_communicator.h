// A communicator whose gathers begin when they are waited for: the slowest network there can be. What reads their
// result before that sees what was there before.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "distributed/comm/communicator_decorator.h"

namespace megatron::test {

class LateCommunicator final : public CommunicatorDecorator {
 public:
  /// `inner` must outlive it. Groups split off, and off those, are late as well.
  explicit LateCommunicator(Communicator& inner) : CommunicatorDecorator(inner), owed_(std::make_shared<int>(0)) {}
  LateCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<int> owed)
      : CommunicatorDecorator(std::move(inner)), owed_(std::move(owed)) {}

  /// Gathers of this rank that were started and not waited for, groups included.
  int owed() const { return *owed_; }

 protected:
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    const std::uint64_t ticket = keep({});
    ++*owed_;
    late_.emplace(ticket, std::pair(part, whole));
    return ticket;
  }
  void finish(std::uint64_t ticket) override {
    if (const auto gather = late_.extract(ticket)) {
      CommunicatorDecorator::finish(
          CommunicatorDecorator::do_all_gather(gather.mapped().first, gather.mapped().second));
      --*owed_;
    }
    CommunicatorDecorator::finish(ticket);
  }
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<LateCommunicator>(std::move(inner), owed_);
  }

 private:
  std::shared_ptr<int> owed_;
  std::map<std::uint64_t, std::pair<ConstTensor, Tensor>> late_;
};

}  // namespace megatron::test
