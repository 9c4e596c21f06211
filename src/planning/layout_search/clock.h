// A clock for recordings: the seconds that a machine takes for each action of a rank, and for what follows the last
// one.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "planning/layout_search/hardware.h"
#include "planning/layout_search/recording.h"

namespace megatron {

/// The uses of a rank's time.
enum class Cost { products, attention, memory, launches, tensor, experts, copies, other };
inline constexpr std::size_t kCosts = 8;
const char* name_of(Cost cost);

struct CostSeconds {
  std::array<double, kCosts> by_cost{};

  double& operator[](Cost cost) { return by_cost[static_cast<std::size_t>(cost)]; }
  double operator[](Cost cost) const { return by_cost[static_cast<std::size_t>(cost)]; }
  double total() const;
  CostSeconds& add(const CostSeconds& other, double times = 1);
};

/// The arrival of something that an action waits for and the step before has started.
struct Arrival {
  double after = 0;    ///< seconds of the action until it waits
  double seconds = 0;  ///< when it is there, from the step's start
};

struct TimedAction {
  CostSeconds seconds;
  double sent_bytes = 0;  ///< to another stage
  std::vector<Arrival> arrivals = {};

  /// How long it waits for them if it starts then, counted from the step's start.
  double waited_from(double start) const;
};

/// The last step of a recording.
struct TimedStep {
  std::vector<TimedAction> actions;  ///< forwards and backwards, in their order
  CostSeconds sums;    ///< from the last action's end to the update: gradient sums that are still to be waited for
  CostSeconds update;  ///< time of the optimizer
};

/// By what was measured, where the hardware has it, else by formulas. Those of a collective over its group are without
/// waiting. `type`: that the run computes in.
double product_seconds(const ProductWork& work, const Hardware& hardware);
double attention_seconds(const AttentionWork& work, const Hardware& hardware);
double operation_seconds(const MemoryWork& work, DType type, const Hardware& hardware);
double collective_seconds(Verb verb, double bytes, const GroupFacts& group, const Hardware& hardware);

/// The rank's own clock advances by operations: the larger of a product's operations at their rate and its bytes at the
/// memory's, and a launch. Each group of ranks has a lane with a clock: a collective that is started takes the lane
/// from where both are, and waiting for it moves the rank's clock to its end. So communication overlaps exactly as the
/// program's own order of starting and waiting lets it.
TimedStep time_recording(const Recording& recording, const Hardware& hardware);

}  // namespace megatron
