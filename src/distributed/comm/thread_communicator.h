// Ranks as threads of one process: for tests under debuggers and sanitizers, and wherever MPI is not wanted.
//
// Results are the same bits as the MPI communicator's (reductions in rank order). The last rank to arrive at a
// collective does it for all, so starting never blocks; sends are copied into mailboxes. All memory is shared, so a
// Tensor given to start_...() is really read and written by other threads until wait().
#pragma once

#include <chrono>
#include <functional>

#include "distributed/comm/communicator.h"

namespace megatron {

/// Runs `body` once per rank, each in its own thread, with a communicator named "world" over all of them, and
/// returns when all have ended. If ranks throw, the first exception is rethrown here; ranks that wait for a failed one
/// are woken with Error(communication) "rank r failed: ...". Waiting longer than `timeout` for the others throws
/// Error(communication) naming rank, group and operation: a deadlock becomes a message.
/// Groups split from the world must not outlive the body.
void run_as_threads(int ranks, const std::function<void(Communicator& world)>& body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace megatron
