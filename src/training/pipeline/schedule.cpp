#include "training/pipeline/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/core/error.h"
#include "config/schema/schedules.h"

namespace megatron {

namespace {

using Kind = Action::Kind;

void check_arguments(int stage, int stages, int micro_batches, int chunks = 1) {
  internal_check(stages >= 1 && stage >= 0 && stage < stages, "a schedule's stage must be in [0, stages)", stage,
                 stages);
  internal_check(micro_batches >= 1, "a schedule needs at least one micro-batch", micro_batches);
  internal_check(chunks >= 1 && (chunks == 1 || stages > 1), "several chunks need several stages", chunks, stages);
}

/// A micro-batch's way through one chunk.
struct ScheduleUnit {
  int micro_batch, chunk;
};

/// The order in which interleaved stages take forwards, and backwards if `reversed`; the first group's size too.
struct Order {
  std::vector<ScheduleUnit> units;
  int first_group = 0;
};

Order interleaved_order(int stages, int micro_batches, int chunks, bool reversed) {
  const int groups = std::max(1, micro_batches / stages);
  Order order;
  for (int group = 0, first = 0; group < groups; ++group) {
    const int size = micro_batches / groups + (group < micro_batches % groups ? 1 : 0);
    if (group == 0) order.first_group = size;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = 0; i < size; ++i) order.units.push_back({first + i, reversed ? chunks - 1 - chunk : chunk});
    }
    first += size;
  }
  return order;
}

/// Warm-up forwards, then a forward and a backward in turn, then the remaining backwards.
std::vector<Action> warmup_steady_cooldown(const std::vector<ScheduleUnit>& forwards,
                                           const std::vector<ScheduleUnit>& backwards, std::size_t warm_up) {
  std::vector<Action> actions;
  actions.reserve(2 * forwards.size());
  const auto add = [&](Kind kind, ScheduleUnit unit) {
    actions.push_back({.kind = kind, .micro_batch = unit.micro_batch, .chunk = unit.chunk});
  };
  for (std::size_t i = 0; i < forwards.size(); ++i) {
    add(Kind::forward, forwards[i]);
    if (i >= warm_up) add(Kind::backward, backwards[i - warm_up]);
  }
  for (std::size_t i = forwards.size() - warm_up; i < backwards.size(); ++i) add(Kind::backward, backwards[i]);
  return actions;
}

// The slots of one pool, numbered from `first` on.
class SlotPool {
 public:
  explicit SlotPool(int first) : first_(first) {}
  int take() {
    const auto free = std::find(taken_.begin(), taken_.end(), false);
    const auto index = static_cast<int>(free - taken_.begin());
    if (free == taken_.end()) taken_.push_back(true);
    taken_[index] = true;
    return first_ + index;
  }
  void give_back(int slot) { taken_[slot - first_] = false; }
  int end() const { return first_ + static_cast<int>(taken_.size()); }

 private:
  int first_;
  std::vector<bool> taken_;
};

/// Slots for the actions that `mine` chooses; returns the first number that was not used.
template <class Mine>
int assign_pool(std::vector<Action>& actions, int first, const Mine& mine) {
  SlotPool pool(first);
  std::map<std::pair<int, int>, int> slot_of;  // (micro-batch, chunk) in flight -> its slot
  for (Action& action : actions) {
    if (!mine(action)) continue;
    const std::pair unit{action.micro_batch, action.chunk};
    if (action.kind == Kind::forward) {
      action.slot = pool.take();
      internal_check(slot_of.emplace(unit, action.slot).second, "a micro-batch is in flight twice in a schedule");
      continue;
    }
    const auto found = slot_of.find(unit);
    internal_check(found != slot_of.end(), "a schedule has a backward without a forward before it");
    action.slot = found->second;
    if (action.kind == Kind::backward_input) continue;
    pool.give_back(action.slot);
    slot_of.erase(found);
  }
  return pool.end();
}

}  // namespace

void assign_slots(std::vector<Action>& actions, int apart) {
  const int first = assign_pool(actions, 0, [&](const Action& action) { return action.chunk == apart; });
  assign_pool(actions, first, [&](const Action& action) { return action.chunk != apart; });
}

int slot_count(const std::vector<Action>& actions) {
  int count = 0;
  for (const Action& action : actions) count = std::max(count, action.slot + 1);
  return count;
}

int gradient_buffers(int stages, int micro_batches, int chunks) {
  if (chunks == 1) return 2;
  return std::max(2, interleaved_order(stages, micro_batches, 1, false).first_group - stages + 1);
}

std::vector<Action> gpipe(int stage, int stages, int micro_batches) {
  check_arguments(stage, stages, micro_batches);
  std::vector<Action> actions;
  actions.reserve(2 * micro_batches);
  for (int i = 0; i < micro_batches; ++i) actions.push_back({.kind = Kind::forward, .micro_batch = i});
  for (int i = 0; i < micro_batches; ++i) actions.push_back({.kind = Kind::backward, .micro_batch = i});
  assign_slots(actions);
  return actions;
}

std::vector<Action> one_f_one_b(int stage, int stages, int micro_batches) {
  check_arguments(stage, stages, micro_batches);
  const std::vector<ScheduleUnit> order = interleaved_order(stages, micro_batches, 1, false).units;
  std::vector<Action> actions = warmup_steady_cooldown(order, order, std::min(stages - stage - 1, micro_batches));
  assign_slots(actions);
  return actions;
}

std::vector<Action> interleaved(int stage, int stages, int micro_batches, int chunks) {
  check_arguments(stage, stages, micro_batches, chunks);
  const Order forwards = interleaved_order(stages, micro_batches, chunks, false);
  const Order backwards = interleaved_order(stages, micro_batches, chunks, true);
  const int warm_up = std::min(2 * (stages - stage - 1) + (chunks - 1) * forwards.first_group, micro_batches * chunks);
  std::vector<Action> actions = warmup_steady_cooldown(forwards.units, backwards.units, warm_up);
  // The logits of the model's last chunk are large: no other chunk's slots should have to be as large.
  assign_slots(actions, stage == stages - 1 ? chunks - 1 : -1);
  return actions;
}

std::vector<Action> zero_bubble(int stage, int stages, int micro_batches) {
  check_arguments(stage, stages, micro_batches);
  std::vector<Action> actions;
  actions.reserve(3 * micro_batches);
  const int warm_up = std::min(stages - stage - 1, micro_batches);
  // Weight gradients at once, as long as the last `stages` micro-batches leave enough of them for the end.
  const int at_once = std::max(micro_batches - stages, 0);
  int forwards = 0, inputs = 0, weights = 0;
  const auto add = [&](Kind kind, int& next) { actions.push_back({.kind = kind, .micro_batch = next++}); };
  while (forwards < warm_up) add(Kind::forward, forwards);
  while (forwards < micro_batches) {
    add(Kind::forward, forwards);
    add(Kind::backward_input, inputs);
    if (weights < at_once) add(Kind::backward_weight, weights);
  }
  while (inputs < micro_batches) {
    if (weights < inputs) add(Kind::backward_weight, weights);
    add(Kind::backward_input, inputs);
  }
  while (weights < micro_batches) add(Kind::backward_weight, weights);
  assign_slots(actions);
  return actions;
}

std::vector<Action> forward_only(int stage, int stages, int micro_batches, int chunks) {
  check_arguments(stage, stages, micro_batches, chunks);
  std::vector<Action> actions;
  actions.reserve(micro_batches * chunks);
  const int first = stage == stages - 1 && chunks > 1 ? 1 : 0;
  int sent = 0;
  for (const ScheduleUnit& unit : interleaved_order(stages, micro_batches, chunks, false).units) {
    const bool end = stage == stages - 1 && unit.chunk == chunks - 1;
    actions.push_back({.micro_batch = unit.micro_batch, .chunk = unit.chunk, .slot = end ? 0 : first + sent++ % 2});
  }
  return actions;
}

std::vector<Action> first_micro_batches(const std::vector<Action>& forwards, int count) {
  std::vector<Action> actions;
  std::copy_if(forwards.begin(), forwards.end(), std::back_inserter(actions),
               [&](const Action& action) { return action.micro_batch < count; });
  return actions;
}

namespace {

/// A schedule whose stages hold one chunk.
template <std::vector<Action> (*list)(int, int, int)>
std::vector<Action> one_chunk(int stage, int stages, int micro_batches, int /*chunks*/) {
  return list(stage, stages, micro_batches);
}

/// p - 1 idle units of time next to `work` busy ones.
double bubble_share(int stages, int work) {
  return static_cast<double>(stages - 1) / (work + stages - 1);
}
// (p-1) / (m+p-1).
std::optional<double> plain_bubble(int stages, int micro_batches, int /*chunks*/) {
  return bubble_share(stages, micro_batches);
}
// (p-1) / (v·m+p-1), from p micro-batches on.
std::optional<double> interleaved_bubble(int stages, int micro_batches, int chunks) {
  if (micro_batches < stages) return std::nullopt;
  return bubble_share(stages, chunks * micro_batches);
}
// (p-1) / (3m+p-1), from p micro-batches on: both halves of a backward as long as a forward.
std::optional<double> zero_bubble_bubble(int stages, int micro_batches, int /*chunks*/) {
  if (micro_batches < stages) return std::nullopt;
  return bubble_share(stages, 3 * micro_batches);
}

double all_in_flight(double /*stages*/, double micro_batches, double /*chunks*/) {
  return micro_batches;
}
double one_per_stage(double stages, double micro_batches, double /*chunks*/) {
  return std::min(stages, micro_batches);
}
double interleaved_in_flight(double stages, double /*micro_batches*/, double chunks) {
  return stages * (1 + (stages - 1) / (stages * chunks));
}

constexpr Schedule kSchedulesHere[] = {
    {"1f1b", one_chunk<one_f_one_b>, plain_bubble, one_per_stage},
    {"gpipe", one_chunk<gpipe>, plain_bubble, all_in_flight},
    {"interleaved", interleaved, interleaved_bubble, interleaved_in_flight},
    {"zero_bubble", one_chunk<zero_bubble>, zero_bubble_bubble, one_per_stage},
};
static_assert(same_names(kSchedulesHere, kSchedules), "config/schema/schedules.h has other schedules");

}  // namespace

std::span<const Schedule> schedules() {
  return kSchedulesHere;
}

const Schedule& schedule_named(std::string_view name) {
  const Schedule* const found = find_row(kSchedulesHere, name);
  if (found != nullptr) return *found;
  fail(ErrorKind::configuration, "parallel.schedule = \"{}\" is unknown: use one of \"{}\"", name,
       fmt::join(names_of(kSchedules), "\", \""));
}

std::vector<Action> make_schedule(const std::string& name, int stage, int stages, int micro_batches, int chunks) {
  const Schedule& schedule = schedule_named(name);
  internal_check(chunks == 1 || row_named(kSchedules, name).chunks, "several chunks in a schedule without them", name,
                 chunks);
  return schedule.build(stage, stages, micro_batches, chunks);
}

std::vector<std::vector<Action>> make_schedules(const std::string& name, int stages, int micro_batches, int chunks) {
  std::vector<std::vector<Action>> lists;
  lists.reserve(stages);
  for (int stage = 0; stage < stages; ++stage) {
    lists.push_back(make_schedule(name, stage, stages, micro_batches, chunks));
  }
  return lists;
}

}  // namespace megatron
