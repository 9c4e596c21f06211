// GroupCheck: the check of one group's collectives. Every call is compared over the ranks before it starts (the same
// call on all of them, in the group that its meaning names, of a tensor that is what its meaning says) and its result
// afterwards (what the others' tensors make it). The ranks tell each other prints of their tensors, over a channel of
// the check's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/parallel/print_exchange.h"

namespace megatron {

/// Bytes that a check holds of this call while it is in flight, where its tensor is: the result of a gather or of a
/// broadcast, which it keeps from the caller until the end.
std::size_t kept_back_bytes(const CheckedCall& call, int rank);

class GroupCheck final : public CollectiveCheck {
 public:
  /// Check of `group`, on this rank of the world, in a grid of this shape. `device` has the group's tensors; nullptr:
  /// the host does. `moved` is a group of the tensors' transport, which must not stand still while the check waits. All
  /// must outlive the check. Collective over the group.
  GroupCheck(const GridShape& shape, int world_rank, Communicator& group, Device* device, Communicator& moved);

  /// Each throws Error(numerics), which names the line that says it, the tensor, the group and its ranks.
  Started starts(const CheckedCall& call) override;
  void ends(std::uint64_t ticket) override;
  void abandons(std::uint64_t ticket) noexcept override { open_.erase(ticket); }
  std::size_t in_flight() const override { return open_.size(); }
  void expects(ConstTensor values, const Statement& said) override;
  /// Compares the results that no call has compared since. No sums may be in flight. Collective over the group; throws
  /// likewise.
  void finish();

 private:
  /// A call as the ranks of the group make it.
  struct Seen {
    std::vector<CallPrint> ranks;
    std::vector<TensorPrint> parts;  ///< for this rank, by rank; empty where a tensor goes whole
    std::uint64_t own = 0;           ///< the bits of this rank's tensor, or of the part of it that it gets the sum of
  };
  /// A call in flight.
  struct Open {
    SaidCall call;
    Tensor output, result;  ///< where the caller reads it, and where the transport puts it
    int peer;
    std::vector<TensorPrint> expected = {};                     ///< the result's, by part
    std::uint64_t own = 0;                                      ///< as in Seen
    std::uint64_t number = 0;                                   ///< for CommonResults
    std::unique_ptr<PrintExchange::Message> message = nullptr;  ///< set by a receive
    Buffer memory = {};                                         ///< the result's, where it is kept from the caller
  };

  Seen exchange(const SaidCall& call, ConstTensor values, int peer);
  void require_same_results(const std::vector<CallPrint>& ranks);
  void require_hold(const SaidCall& call, const Seen& seen) const;
  std::vector<TensorPrint> prints(ConstTensor values, int parts) const;
  std::vector<TensorPrint> expected_of(const CheckedCall& call, const Seen& seen) const;
  void keep_back(Open& open, int parts, int own) const;
  void keep_sum(std::uint64_t bits, const SaidCall& call);
  void check_result(const Open& open);

  Device* device_;
  PrintExchange exchange_;
  CheckedGroup group_;
  CommonResults results_;
  std::map<std::uint64_t, Open> open_;  // by ticket
  std::uint64_t last_ticket_ = 0;
  std::map<std::uint64_t, SaidCall> sums_;  // by the bits of the sums that these calls made or know of
};

}  // namespace megatron
