// agree: work that every rank does for itself, with an outcome that all ranks share.
#pragma once

#include <functional>
#include <optional>

#include "base/error.h"
#include "comm/communicator.h"

namespace megatron {

/// Runs `work` (which must not communicate) on this rank. If it threw on any rank, the lowest such rank's error is
/// thrown on all of them, with `kind` if that is given (internal and numerics keep theirs). Also a barrier.
void agree(Communicator& world, const std::function<void()>& work, std::optional<ErrorKind> kind = {});

}  // namespace megatron
