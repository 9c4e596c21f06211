// Pipeline schedules as data: for one stage, the list of actions that an executor plays in order.
//
// Pure functions of (stage, stages, micro-batches); every stage can compute every other stage's list. An action names
// the slot its activations live in: a forward takes the smallest free slot, and the micro-batch's last backward frees
// it, so that the memory for micro-batches in flight is slot_count(list) times one arena. Nothing here knows tensors,
// communicators or time; simulate.h adds time.
//
// A forward often takes the very slot that the action before it frees (every steady 1F1B pair does). An input that is
// received ahead, while that action still reads the slot, therefore needs a buffer outside the slots.
//
// A backward is one action (`backward`) where nothing is gained by cutting it. Schedules that delay weight gradients
// use `backward_input` (which sends the input's gradient on) and later `backward_weight` (which frees the slot).
#pragma once

#include <string>
#include <vector>

namespace megatron {

struct Action {
  enum class Kind { forward, backward, backward_input, backward_weight };

  Kind kind = Kind::forward;
  int micro_batch = 0;  ///< in [0, micro_batches) of this step
  int chunk = 0;        ///< which of the stage's model chunks; 0 unless stages hold several
  int slot = 0;         ///< where this micro-batch's activations of this chunk live

  bool operator==(const Action&) const = default;
};

/// All forwards, then all backwards in the same order; holds all micro-batches at once.
std::vector<Action> gpipe(int stage, int stages, int micro_batches);

/// min(stages - stage - 1, micro_batches) forwards to warm up, then a forward and a backward in turn, then the
/// remaining backwards; holds at most stages - stage micro-batches.
std::vector<Action> one_f_one_b(int stage, int stages, int micro_batches);

/// Forwards only, for evaluation: `slots` slots in turn; with two, one output is still being sent while the other
/// works.
std::vector<Action> forward_only(int stage, int stages, int micro_batches, int slots = 2);

/// The training schedule with the input file's name ("1f1b" or "gpipe").
/// Errors: configuration, for a name that is unknown or not available.
std::vector<Action> make_schedule(const std::string& name, int stage, int stages, int micro_batches);

/// make_schedule for every stage in order.
std::vector<std::vector<Action>> make_schedules(const std::string& name, int stages, int micro_batches);

/// Sets every action's slot: the smallest one free at a (micro-batch, chunk)'s forward, freed by its `backward` or
/// `backward_weight`. Errors: internal, for a backward before its forward or a piece that appears twice at a time.
void assign_slots(std::vector<Action>& actions);

/// Slots an executor must provide for this list: the highest slot named + 1, 0 for an empty list.
int slot_count(const std::vector<Action>& actions);

}  // namespace megatron
