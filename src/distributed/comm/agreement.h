// agree: work that every rank does for itself, with an outcome that all ranks share.
#pragma once

#include <functional>
#include <optional>

#include "base/core/error.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// An error that all ranks have alike: one of them reports it for all.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Runs `work` (which must not communicate) on this rank. If it threw on any rank, the lowest such rank's error is
/// thrown on all of them as an AgreedError, in front of it that rank and its host unless all ranks have the same, with
/// `kind` if that is given (internal and numerics keep theirs). Also a barrier.
void agree(Communicator& world, const std::function<void()>& work, std::optional<ErrorKind> kind = {});
/// The same for work of rank 0 alone.
inline void on_rank_0(Communicator& world, const std::function<void()>& work, std::optional<ErrorKind> kind = {}) {
  const std::function<void()> nothing = [] {};
  agree(world, world.rank() == 0 ? work : nothing, kind);
}

}  // namespace megatron
