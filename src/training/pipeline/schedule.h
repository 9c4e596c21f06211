// Pipeline schedules as data: for one stage, the list of actions that an executor plays in order. Pure functions of
// (stage, stages, micro-batches, chunks); every stage can compute every other stage's list. Nothing here knows tensors,
// communicators or time; simulate.h adds time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A stage holds one chunk of the model, or several: chunk c of stage r is piece c · stages + r, so that the stages are
/// a ring. An action names the slot its activations live in: a forward takes the smallest free slot, and the
/// micro-batch's last backward frees it. Every parameter's gradients are added in the order of the micro-batches,
/// whatever the list.
///
/// A forward often takes the very slot that the action before it frees (every steady 1F1B pair does). An input that is
/// received ahead, while that action still reads the slot, therefore needs a buffer outside the slots.
///
/// A backward is one action (`backward`) where nothing is gained by cutting it. Schedules that delay weight gradients
/// use `backward_input` (which sends the input's gradient) and later `backward_weight` (which frees the slot).
struct Action {
  enum class Kind {
    forward,
    backward,         ///< both halves of a backward at once
    backward_input,   ///< the gradient of the input (and of biases and norms): what the previous stage waits for
    backward_weight,  ///< the gradients of the matrices, which no other stage waits for
  };

  Kind kind = Kind::forward;
  int micro_batch = 0;  ///< in [0, micro_batches) of this step
  int chunk = 0;        ///< number of the stage's model chunk; 0 unless stages hold several
  int slot = 0;         ///< where this micro-batch's activations of this chunk live

  bool operator==(const Action&) const = default;
};

/// All forwards, then all backwards in the same order; holds all micro-batches at once.
std::vector<Action> gpipe(int stage, int stages, int micro_batches);

/// min(stages - stage - 1, micro_batches) forwards to warm up, then a forward and a backward in turn, then the
/// remaining backwards; holds at most stages - stage micro-batches.
std::vector<Action> one_f_one_b(int stage, int stages, int micro_batches);

/// Interleaved 1F1B (Narayanan et al. 2021): groups of micro-batches go through chunk 0, then the whole group through
/// chunk 1, and so on; backwards the other way round. With n micro-batches in the first group, 2 (stages - stage - 1) +
/// (chunks - 1) n forwards to warm up; one more is the most that is held at once.
///
/// Groups have `stages` micro-batches. Where that does not divide them, the remainder is spread over the groups: a
/// smaller last group, which comes to mind first, deadlocks (4 stages, 3 chunks, 5 micro-batches), while larger ones
/// have the bubble of the formula for any number of micro-batches from `stages` on. Needs at least two stages.
std::vector<Action> interleaved(int stage, int stages, int micro_batches, int chunks);

/// ZB-H1 (Qi et al. 2023): 1F1B with backwards cut in two, so that the previous stage waits for the first half only.
/// A weight gradient follows its input gradient at once, but those of the last micro-batches are kept for the end,
/// where they fill what would be idle: there a stage holds min(stages, micro_batches), which is what 1F1B's first
/// stage holds.
std::vector<Action> zero_bubble(int stage, int stages, int micro_batches);

/// Forwards only, for evaluation, in the order of interleaved(). Two slots in turn, so that one output is still being
/// sent while the other is computed; the end of the model, which sends nothing, has a separate one (slot 0).
std::vector<Action> forward_only(int stage, int stages, int micro_batches, int chunks = 1);
/// The actions of the first `count` micro-batches of such a list, in the slots that the whole list has for them.
std::vector<Action> first_micro_batches(const std::vector<Action>& forwards, int count);

/// A training schedule: its list, and what is published about it. config/schema/schedules.h has the rest, under the
/// same name.
struct Schedule {
  std::string_view name;
  std::vector<Action> (*build)(int stage, int stages, int micro_batches, int chunks);
  /// The bubble as a share of the whole time, stages being equally fast and a backward twice a forward. None where no
  /// formula holds.
  std::optional<double> (*bubble)(int stages, int micro_batches, int chunks);
  /// Micro-batches that the first stage's layers have in flight, on average over its layers.
  double (*in_flight)(double stages, double micro_batches, double chunks);
};

std::span<const Schedule> schedules();
const Schedule& schedule_named(std::string_view name);  ///< Errors: configuration, for an unknown name

/// The list of the training schedule with this name.
/// Errors: configuration, for an unknown name; internal, for chunks in a schedule without them.
std::vector<Action> make_schedule(const std::string& name, int stage, int stages, int micro_batches, int chunks = 1);

/// make_schedule for every stage in order.
std::vector<std::vector<Action>> make_schedules(const std::string& name, int stages, int micro_batches, int chunks = 1);

/// Sets every action's slot: the smallest one free at a (micro-batch, chunk)'s forward, freed by its `backward` or
/// `backward_weight`. Chunk `apart` (-1: none) shares its slots, which come first, with no other chunk.
/// Errors: internal, for a backward before its forward or a piece that appears twice at a time.
void assign_slots(std::vector<Action>& actions, int apart = -1);

/// Slots an executor must provide for this list: the highest slot named + 1, 0 for an empty list.
int slot_count(const std::vector<Action>& actions);

/// Buffers for gradients on their way to the previous stage, which outlive their slot, so that no stage ever waits for
/// one: with chunks a stage may send some before they are asked for. From two on there is no deadlock.
int gradient_buffers(int stages, int micro_batches, int chunks = 1);

}  // namespace megatron
