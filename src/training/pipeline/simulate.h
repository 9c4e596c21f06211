// Plays all stages' schedules on paper: finds deadlocks and mixed-up messages, and gives the makespan, the bubble and
// the slots in flight. The model is that of the executor; simulate() describes it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/pipeline/schedule.h"

namespace megatron {

enum class SendMode {
  buffered,     ///< a send never waits: the network holds any amount
  nonblocking,  ///< data moves when send and receive are both posted; the sender continues (the executor's way, worst
                ///< case)
  synchronous,  ///< as nonblocking, but the sender stands still until its send has been received. Not for several
                ///< chunks: gradients leave some actions before they are asked for (gradient_buffers() of schedule.h),
                ///< and round the ring every stage then stands in a send, receives posted ahead or not
};

struct SimulationOptions {
  double forward_seconds = 1, backward_seconds = 2;  ///< for one micro-batch through one chunk, equal on all stages
  double input_share = 0.5;  ///< share of a backward that `backward_input` takes; the rest is the weights'
  SendMode sends = SendMode::nonblocking;
  bool receive_ahead = false;  ///< post every receive before the preceding action
  int gradient_buffers = 2;    ///< per stage, taken in turn: see gradient_buffers() of schedule.h
  /// If set: what this stage's action takes that starts then, in place of the seconds above. The same each time that it
  /// is asked.
  std::function<double(int stage, const Action& action, double start)> seconds = {};
  /// If set: seconds from a send's start, both ends being ready, until its data has arrived at that neighbour.
  std::function<double(int from, int to)> transfer = {};
};

struct Simulation {
  bool deadlock = false;             ///< also when a message arrives where another one is meant to
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
///
/// A stage performs its list in order. A forward takes its slot when the earlier output out of that slot has been
/// received, a backward its gradient buffer likewise; then the action's receive is posted (or, to study what that is
/// good for, already before the preceding action, into memory outside the slots); then the action waits for its input,
/// computes, and starts its send. Moving the data takes no time unless SimulationOptions::transfer says otherwise.
///
/// Stages are a ring of model chunks: chunk c of stage r follows stage r - 1's chunk c, and stage 0's chunk c follows
/// the last stage's chunk c - 1. A stage has one channel to each neighbour for outputs and one for gradients; the n-th
/// receive of a channel gets the n-th send, whatever either means.
Simulation simulate(const std::vector<std::vector<Action>>& schedules, const SimulationOptions& options = {});

/// The published bubble: Schedule::bubble of the schedule with this name.
std::optional<double> analytic_bubble(const std::string& schedule, int stages, int micro_batches, int chunks = 1);

/// A table of stages × time: F3 is the forward of micro-batch 3, B3 its backward (twice as long), or, where it is cut
/// in two, B3 and W3; dots are idle. With several chunks a letter names the chunk: F3a, F3b. Wrapped at `width`
/// characters; what is beyond `most_blocks` times that is cut, and it says so. With more than 8 stages a line that says
/// that it is not drawn. For people; ends with a newline.
std::string draw_schedules(const std::vector<std::vector<Action>>& schedules, int width = 110, int most_blocks = 3);

}  // namespace megatron
