// CollectiveCheck: hears of what a group's ranks communicate, and of what they say about it. One for each
// communicator that is checked. An interface: communicators must not know how it is checked.
#pragma once

#include <cstdint>

#include "backend/tensor/tensor.h"
#include "base/core/activity.h"
#include "distributed/comm/meaning.h"

namespace megatron {

/// A call of a verb, as it starts.
struct CheckedCall {
  Verb verb;
  const Statement& said;
  ConstTensor input;  ///< absent for receivers
  Tensor output;      ///< absent for senders
  int peer = -1;      ///< the other side, or the root
  int channel = -1;   ///< a message's
};

class CollectiveCheck {
 public:
  virtual ~CollectiveCheck() = default;

  struct Started {
    std::uint64_t ticket = 0;  ///< for ends(); 0: there is nothing to say at the end
    Tensor output;             ///< where the transport puts the result, in place of the call's output
  };
  /// Collective over the group for collectives. Throws where the call is wrong.
  virtual Started starts(const CheckedCall& call) = 0;
  /// The result is there. Throws where it is wrong.
  virtual void ends(std::uint64_t ticket) = 0;
  /// Collective over the group. Throws where the tensor is not what is said of it.
  virtual void expects(ConstTensor values, const Statement& said) = 0;
  /// In place of ends(), where an exception unwinds: the transport touches the result no more.
  virtual void abandons(std::uint64_t ticket) noexcept = 0;
  /// Calls with a ticket that have not ended.
  virtual std::size_t in_flight() const = 0;
};

}  // namespace megatron
