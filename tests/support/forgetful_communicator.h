// A communicator whose groups of one name leave out their all-reduces of gradients, or their all-gathers: the defects
// that a layout is verified against. Everything else passes through.
#pragma once

#include "distributed/comm/communicator_decorator.h"

namespace megatron::test {

class ForgetfulCommunicator final : public CommunicatorDecorator {
 public:
  /// Groups split off `inner`, and off those, are forgetful if they are named `group`; of "NAME gathers"
  /// those named NAME leave out their gathers. `inner` must outlive it.
  ForgetfulCommunicator(Communicator& inner, std::string group)
      : CommunicatorDecorator(inner), group_(std::move(group)) {}
  ForgetfulCommunicator(std::unique_ptr<Communicator> inner, std::string group)
      : CommunicatorDecorator(std::move(inner)), group_(std::move(group)) {}

 protected:
  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    const bool forget = name() == group_ && values.dtype() == DType::f32 && reduce == Reduce::sum;
    return forget ? keep({}) : CommunicatorDecorator::do_all_reduce(values, reduce);
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    return name() + " gathers" == group_ ? keep({}) : CommunicatorDecorator::do_all_gather(part, whole);
  }
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<ForgetfulCommunicator>(std::move(inner), group_);
  }

 private:
  std::string group_;
};

}  // namespace megatron::test
