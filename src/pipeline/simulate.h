// Plays all stages' schedules on paper: finds deadlocks, and gives the makespan, the bubble and the slots in flight.
//
// The model is that of the executor. A stage performs its list in order. A forward takes its slot when every earlier
// send out of that slot has been received; then the action's receive is posted (or, to study what that is good for,
// already before the preceding action, into memory outside the slots); then the action waits for its input, computes,
// and starts its send. Moving the data takes no time. Stages are a ring of model chunks: chunk c of stage r follows
// stage r - 1's chunk c, and stage 0's chunk c follows the last stage's chunk c - 1.
#pragma once

#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace megatron {

enum class SendMode {
  buffered,     ///< a send never waits: the network holds any amount
  nonblocking,  ///< data moves when send and receive are both posted; the sender goes on (the executor's way, worst
                ///< case)
  synchronous,  ///< as nonblocking, but the sender stands still until its send has been received
};

struct SimulationOptions {
  double forward_seconds = 1, backward_seconds = 2;  ///< of one micro-batch through one chunk, equal on all stages
  double input_share = 0.5;  ///< of a backward that `backward_input` takes; the rest is weights'
  SendMode sends = SendMode::nonblocking;
  bool receive_ahead = false;  ///< post every receive before the preceding action
};

struct Simulation {
  bool deadlock = false;
  std::string explanation;           ///< on deadlock: a line per stage that stands still, saying what it waits for
  double makespan = 0;               ///< seconds from the first action's start to the last one's end
  double bubble_fraction = 0;        ///< share of makespan × stages in which a stage does not compute
  std::vector<int> slots_in_flight;  ///< per stage: most micro-batches held at once (forward done or begun, not freed)
  struct Span {
    double start = 0, finish = 0;
  };
  std::vector<std::vector<Span>> spans;  ///< per stage and action; meaningful when there is no deadlock
};

/// `schedules[stage]` is that stage's list. Errors: internal, for an empty set of stages.
Simulation simulate(const std::vector<std::vector<Action>>& schedules, const SimulationOptions& options = {});

/// A table of stages × time: F3 is the forward of micro-batch 3, B3 its backward (twice as long), dots are idle. Rows
/// longer than `width` characters are cut and say so. For people; ends with a newline.
std::string draw_schedules(const std::vector<std::vector<Action>>& schedules, int width = 110);

}  // namespace megatron
