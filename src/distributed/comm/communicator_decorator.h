// CommunicatorDecorator: hands everything on to another communicator, and so do the groups split off it. For benchmarks
// and tests to derive from: communicators that wait, watch, or leave out a verb.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "distributed/comm/communicator.h"

namespace megatron {

class CommunicatorDecorator : public Communicator {
 public:
  std::size_t staging_bytes() const override { return inner_.staging_bytes(); }
  void reserve_staging(const StagingPlan& plan) override { inner_.reserve_staging(plan); }
  Communicator& host() override { return &inner_.host() == &inner_ ? *this : inner_.host(); }

 protected:
  /// `inner` must outlive this.
  explicit CommunicatorDecorator(Communicator& inner)
      : Communicator(inner.rank(), inner.size(), inner.name()), inner_(inner) {}
  explicit CommunicatorDecorator(std::unique_ptr<Communicator> inner) : CommunicatorDecorator(*inner) {
    owned_ = std::move(inner);
  }

  /// One of the derived kind around a group that was split off.
  virtual std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const = 0;

  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    return keep(inner_.start_all_reduce(values, passed_on(reduce)));
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    return keep(inner_.start_all_gather(part, whole, kPassedOn));
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    return keep(inner_.start_reduce_scatter(whole, part, kPassedOn));
  }
  std::uint64_t do_broadcast(Tensor values, int root) override {
    return keep(inner_.start_broadcast(values, root, kPassedOn));
  }
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override {
    return keep(inner_.start_all_to_all(send, receive, kPassedOn));
  }
  std::uint64_t do_send(ConstTensor values, int to, int channel) override {
    return keep(inner_.start_send(values, to, channel, kPassedOn));
  }
  std::uint64_t do_receive(Tensor values, int from, int channel) override {
    return keep(inner_.start_receive(values, from, channel, kPassedOn));
  }
  void do_barrier() override { inner_.barrier(); }
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override {
    return around(inner_.split(colour, key, name));
  }
  bool ready(std::uint64_t ticket) override { return pending_.at(ticket).ready(); }
  void finish(std::uint64_t ticket) override {
    pending_.at(ticket).wait();
    pending_.erase(ticket);
  }
  void do_progress() override { inner_.progress(); }
  void abandon(std::uint64_t ticket) noexcept override { pending_.erase(ticket); }

  /// Everything that is started comes here; returns the ticket of finish().
  virtual std::uint64_t keep(Pending pending) {
    pending_.emplace(++last_, std::move(pending));
    return last_;
  }

 private:
  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t last_ = 0;
};

}  // namespace megatron
