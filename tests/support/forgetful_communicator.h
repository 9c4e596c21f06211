// A communicator whose groups of one name leave out their all-reduces of gradients, or their all-gathers: the defects
// that a layout is verified against. Everything else passes through.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"

namespace megatron::test {

class ForgetfulCommunicator final : public Communicator {
 public:
  /// Groups split off `inner`, and off those, are forgetful if they are named `group`; of "NAME gathers"
  /// those named NAME leave out their gathers. `inner` must outlive it.
  ForgetfulCommunicator(Communicator& inner, std::string group)
      : Communicator(inner.rank(), inner.size(), inner.name()), inner_(inner), group_(std::move(group)) {}

 protected:
  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    const bool forget = name() == group_ && values.dtype() == DType::f32 && reduce == Reduce::sum;
    return keep(forget ? Pending() : inner_.start_all_reduce(values, reduce));
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    return keep(name() + " gathers" == group_ ? Pending() : inner_.start_all_gather(part, whole));
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    return keep(inner_.start_reduce_scatter(whole, part));
  }
  std::uint64_t do_broadcast(Tensor values, int root) override { return keep(inner_.start_broadcast(values, root)); }
  std::uint64_t do_send(ConstTensor values, int to, int channel) override {
    return keep(inner_.start_send(values, to, channel));
  }
  std::uint64_t do_receive(Tensor values, int from, int channel) override {
    return keep(inner_.start_receive(values, from, channel));
  }
  void do_barrier() override { inner_.barrier(); }
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override {
    auto part = std::make_unique<ForgetfulCommunicator>(inner_.split(colour, key, name), group_);
    return part;
  }
  void finish(std::uint64_t ticket) override {
    pending_.at(ticket).wait();
    pending_.erase(ticket);
  }
  void do_progress() override { inner_.progress(); }
  void abandon(std::uint64_t ticket) noexcept override { pending_.erase(ticket); }

 public:
  ForgetfulCommunicator(std::unique_ptr<Communicator> inner, const std::string& group)
      : ForgetfulCommunicator(*inner, group) {
    owned_ = std::move(inner);
  }

 private:
  std::uint64_t keep(Pending pending) {
    pending_.emplace(++last_, std::move(pending));
    return last_;
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::string group_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t last_ = 0;
};

}  // namespace megatron::test
