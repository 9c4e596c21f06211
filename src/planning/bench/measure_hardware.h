// Measures the machine that it runs on for the planner: products, attention and other operations by the program's own
// backend, and links between the ranks of one node by its own communicators. All ranks measure at the same time, as
// they compute in a step. The result is what a hardware file holds.
#pragma once

#include <string>

#include "distributed/comm/communicator.h"
#include "planning/layout_search/hardware.h"

namespace megatron {

struct HardwareSettings {
  int threads = 1;              ///< per rank
  std::string device = "auto";  ///< as run.device
  int local_rank = 0;           ///< among the ranks on this host
  /// Largest products, models and messages, and how often each is measured: less for tests, whose numbers count little.
  bool quick = false;
};

struct MeasuredHardware {
  Hardware hardware;
  /// Part of the measuring time for which the ranks' threads had a core, on the rank with the least. Well below 1,
  /// other programs' work is in the numbers. 1 on a device.
  double undisturbed = 1;
};

/// Collective over `world`; complete on each rank. Errors: configuration, on all ranks, where they are on several hosts
/// or have fewer cores than threads: what ranks that take turns on a core measure is no rate of it.
MeasuredHardware measure_hardware(const HardwareSettings& settings, Communicator& world);

/// A few lines for people: the largest rates.
std::string describe(const MeasuredHardware& measured);

}  // namespace megatron
