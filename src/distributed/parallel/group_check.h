// GroupCheck: the check of one group's collectives. Every call is compared over the ranks before it starts (the same
// call on all of them, in the group that its meaning names, of a tensor that is what its meaning says) and its result
// afterwards (what the others' tensors make it). The ranks exchange fingerprints of their tensors over a separate
// communicator, so that the group's own traffic stays the same with and without a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/process_grid.h"
#include "distributed/parallel/tensor_print.h"

namespace megatron {

class GroupCheck final : public CollectiveCheck {
 public:
  /// Check of `group`, on this rank of the world, in a grid of this shape, which must outlive the check. `device` has
  /// the group's tensors; nullptr: the host does. Collective over the group.
  GroupCheck(const GridShape& shape, int world_rank, Communicator& group, Device* device);
  ~GroupCheck() override;

  /// Each throws Error(numerics), which names the line that says it, the tensor, the group and its ranks.
  Started starts(const CheckedCall& call) override;
  void ends(std::uint64_t ticket) override;
  void expects(ConstTensor values, const Statement& said) override;

 private:
  /// A rank's call as the others see it, followed by as many prints as there are ranks.
  struct Header {
    std::uint64_t call;     ///< a hash of what must be the same on all ranks
    std::uint64_t results;  ///< a hash of the bits of all results so far that all ranks have
    std::uint64_t repeats;  ///< whether the tensor is the result of an earlier sum
  };
  struct Seen {
    Header header;
    std::vector<TensorPrint> prints;
  };
  /// A call in flight.
  struct Open {
    Verb verb;
    Statement said;
    Tensor output, result;  ///< where the caller reads it, and where the transport puts it
    int peer, channel;
    std::vector<TensorPrint> expected;  ///< the result's, by part
    std::uint64_t own = 0;  ///< the bits of this rank's tensor, or of the part of it that it gets the sum of
    Buffer memory = {};     ///< the result's, where it is kept from the caller until the end
  };
  struct SentPrint;

  std::string line(Verb verb, const Statement& said) const;
  void require_group(Verb verb, const Statement& said) const;
  std::vector<Seen> exchange(Verb verb, const Statement& said, ConstTensor values, int peer, int parts);
  void require_hold(Verb verb, const Statement& said, const std::vector<Seen>& ranks) const;
  std::string list_of(const std::vector<int>& ranks) const;
  std::vector<TensorPrint> prints(ConstTensor values, int parts);
  /// The part of an input whose sum this rank gets.
  std::size_t summed_part(Verb verb) const;
  std::vector<TensorPrint> expected_of(const CheckedCall& call, const std::vector<Seen>& ranks) const;
  void keep_back(Open& open, int parts, int own);
  void send_print(const CheckedCall& call);
  void keep_sum(const TensorPrint& print, const std::string& text);
  void check_result(const Open& open);

  const GridShape& shape_;
  std::string name_;
  int rank_, world_rank_;
  std::unique_ptr<Communicator> side_;  // the same ranks, in host memory
  std::vector<int> members_;            // the world's ranks
  Device* device_;
  std::map<std::uint64_t, Open> open_;
  std::vector<std::unique_ptr<SentPrint>> sent_;
  std::uint64_t last_ticket_ = 0, results_ = 0;
  std::string last_result_;
  std::map<std::uint64_t, std::string> sums_;  // lines, by the bits of the sums that they made or know of
  std::vector<std::byte> read_;
};

}  // namespace megatron
