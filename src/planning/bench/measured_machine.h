// The parts of measure_hardware(): a rank with its backend and the others that measure with it, and what each part
// finds out. Owns nothing but the backend.
#pragma once

#include <functional>

#include "planning/bench/measure_hardware.h"
#include "training/step/compute.h"

namespace megatron {

struct MeasuredMachine {
  HardwareSettings settings;
  Communicator& world;
  Compute compute;

  Ops& ops() const { return *compute.backend.ops; }
  Device& device() const { return *compute.backend.device; }
  /// Moves the device's tensors.
  Communicator& tensors() const { return compute.transport ? *compute.transport : world; }

  /// Median seconds of a call, of this number of calls in a row that end together, after one that does not count.
  /// `call(i)`: the i-th.
  double seconds(int rounds, int calls, const std::function<void(int)>& call) const;
  /// The ranks' mean of each number; they have as many.
  void average(std::vector<double*> numbers) const;
};

void measure_products(const MeasuredMachine& machine, DType type, MeasuredRates& rates);
void measure_attention(const MeasuredMachine& machine, DType type, MeasuredRates& rates);
/// Measures all other operations by training small models for a few steps. Returns a rank's seconds between two of
/// them.
double measure_operations(MeasuredMachine& machine, DType type, MeasuredRates& rates);
/// Bytes per second, read and written, of memory that no cache holds.
double measure_memory(const MeasuredMachine& machine);
void measure_links(const MeasuredMachine& machine, MeasuredLinks& links);

}  // namespace megatron
