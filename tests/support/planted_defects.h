// Defects planted into a layout, to prove that --verify finds them: communication that goes wrong in the groups of one
// name, and operations that get wrong arguments on one rank. Rank 0's work alone, the reference, stays right: a group
// of one rank does not communicate, and tests plant wrong arguments on other ranks.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/ops/ops_decorator.h"
#include "distributed/comm/communicator_decorator.h"

namespace megatron::test {

/// Defects in the communicator groups named `group`; what is not set goes right.
struct CommunicationDefect {
  std::string group;
  std::function<bool(const Tensor& values, Reduce reduce)> forgets_all_reduce = {};
  bool forgets_reduce_scatter = false;  ///< each rank keeps its own share
  std::function<void(Tensor values, int ranks)> after_sum = {};
  bool forgets_broadcasts = false;
  bool swaps_gathered_parts = false;       ///< the first and the last rank's
  bool swaps_exchanged_parts = false;      ///< in an all-to-all, likewise
  bool repeats_received_messages = false;  ///< each second one is the one before it again
};

/// When a rank's defects begin: before anything else, or with the comparison in 16 bits, before which one rank alone
/// has played for the second time.
struct Onset {
  bool in_16_bits = false;
  int plays_alone = 0;  ///< that this rank has seen begin
  bool come() const { return !in_16_bits || plays_alone > 1; }
};

class DefectiveCommunicator final : public CommunicatorDecorator {
 public:
  /// `inner`, `defect` and `onset` must outlive it and the groups split off it.
  DefectiveCommunicator(Communicator& inner, const CommunicationDefect& defect, Onset& onset)
      : CommunicatorDecorator(inner), defect_(defect), onset_(onset) {}
  DefectiveCommunicator(std::unique_ptr<Communicator> inner, const CommunicationDefect& defect, Onset& onset)
      : CommunicatorDecorator(std::move(inner)), defect_(defect), onset_(onset) {
    if (name() == "reference") ++onset_.plays_alone;
  }

 protected:
  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    if (here() && defect_.forgets_all_reduce && defect_.forgets_all_reduce(values, reduce)) return keep({});
    return after_sum(CommunicatorDecorator::do_all_reduce(values, reduce), values);
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    if (here() && defect_.forgets_reduce_scatter) {
      const std::size_t bytes = part.bytes();
      std::memmove(part.data(), static_cast<const char*>(whole.data()) + static_cast<std::size_t>(rank()) * bytes,
                   bytes);
      return keep({});
    }
    return after_sum(CommunicatorDecorator::do_reduce_scatter(whole, part), part);
  }
  std::uint64_t do_broadcast(Tensor values, int root) override {
    return here() && defect_.forgets_broadcasts ? keep({}) : CommunicatorDecorator::do_broadcast(values, root);
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    const std::uint64_t ticket = CommunicatorDecorator::do_all_gather(part, whole);
    if (here() && defect_.swaps_gathered_parts) after_[ticket] = [this, whole] { swap_parts(whole); };
    return ticket;
  }
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override {
    const std::uint64_t ticket = CommunicatorDecorator::do_all_to_all(send, receive);
    if (here() && defect_.swaps_exchanged_parts) after_[ticket] = [this, receive] { swap_parts(receive); };
    return ticket;
  }
  std::uint64_t do_receive(Tensor values, int from, int channel) override {
    const std::uint64_t ticket = CommunicatorDecorator::do_receive(values, from, channel);
    if (here() && defect_.repeats_received_messages) {
      after_[ticket] = [this, values] {
        if (++received_ % 2 == 0) {
          std::memcpy(values.data(), last_.data(), values.bytes());
        } else {
          last_.assign(static_cast<const char*>(values.data()),
                       static_cast<const char*>(values.data()) + values.bytes());
        }
      };
    }
    return ticket;
  }
  void finish(std::uint64_t ticket) override {
    CommunicatorDecorator::finish(ticket);
    if (const auto after = after_.extract(ticket)) after.mapped()();
  }
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<DefectiveCommunicator>(std::move(inner), defect_, onset_);
  }

 private:
  bool here() const { return name() == defect_.group && onset_.come(); }
  std::uint64_t after_sum(std::uint64_t ticket, Tensor values) {
    if (here() && defect_.after_sum && values.dtype() == DType::f32) {
      after_[ticket] = [this, values] { defect_.after_sum(values, size()); };
    }
    return ticket;
  }
  void swap_parts(Tensor whole) const {
    auto* const first = static_cast<char*>(whole.data());
    const std::size_t bytes = whole.bytes() / static_cast<std::size_t>(size());
    std::swap_ranges(first, first + bytes, first + whole.bytes() - bytes);
  }

  const CommunicationDefect& defect_;
  Onset& onset_;
  std::map<std::uint64_t, std::function<void()>> after_;  // by ticket
  std::vector<char> last_;
  int received_ = 0;
};

/// Operations whose arguments may be changed before each call.
class DefectiveOps final : public OpsDecorator {
 public:
  /// `onset` must outlive it.
  DefectiveOps(std::unique_ptr<Ops> inner, const Onset& onset) : OpsDecorator(std::move(inner)), onset_(onset) {}
  std::function<void(Dropout&)> with_dropout;
  std::function<void(RotaryArgs&)> with_rotary;
  std::function<void(std::int64_t& first_row)> with_embedding;
  std::function<void(AdamWArgs&)> with_adamw;
  std::function<void(float& scale)> with_loss_scale;

  void dropout_add_forward(const DropoutAddForwardArgs& args) override {
    OpsDecorator::dropout_add_forward(changed(args, with_dropout, &DropoutAddForwardArgs::dropout));
  }
  void dropout_add_backward(const DropoutAddBackwardArgs& args) override {
    OpsDecorator::dropout_add_backward(changed(args, with_dropout, &DropoutAddBackwardArgs::dropout));
  }
  void rotary(const RotaryArgs& args) override {
    RotaryArgs changed = args;
    if (with_rotary && onset_.come()) with_rotary(changed);
    OpsDecorator::rotary(changed);
  }
  void embedding_forward(const EmbeddingForwardArgs& args) override {
    OpsDecorator::embedding_forward(changed(args, with_embedding, &EmbeddingForwardArgs::first_row));
  }
  void embedding_backward(const EmbeddingBackwardArgs& args) override {
    OpsDecorator::embedding_backward(changed(args, with_embedding, &EmbeddingBackwardArgs::first_row));
  }
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override {
    OpsDecorator::cross_entropy_backward(changed(args, with_loss_scale, &CrossEntropyBackwardArgs::scale));
  }
  void adamw(const AdamWArgs& args) override {
    AdamWArgs changed = args;
    if (with_adamw && onset_.come()) with_adamw(changed);
    OpsDecorator::adamw(changed);
  }

 private:
  template <class Args, class Part>
  Args changed(Args args, const std::function<void(Part&)>& change, Part Args::*part) const {
    if (change && onset_.come()) change(args.*part);
    return args;
  }
  void pass(const char*, const std::function<void()>& call) override { call(); }

  const Onset& onset_;
};

}  // namespace megatron::test
