// By how much the ranks' clocks differ from rank 0's: from messages there and back, of which the fastest counts
// (Cristian 1989). For times of several ranks in one picture.
#pragma once

#include <cstdint>
#include <functional>

#include "distributed/comm/communicator.h"

namespace megatron {

/// Offset of this rank's clock, in nanoseconds: it reads `ahead` more than rank 0's at `read`, to within `error`, half
/// of the fastest way there and back.
struct ClockOffset {
  std::int64_t ahead = 0, error = 0, read = 0;
};

/// Collective over `world`; `clock` gives nanoseconds and never goes back. One rank after the other, 50 messages each.
ClockOffset measure_clock_offset(Communicator& world, const std::function<std::int64_t()>& clock);

}  // namespace megatron
