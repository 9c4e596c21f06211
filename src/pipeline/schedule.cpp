#include "pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace megatron {

namespace {

void check_arguments(int stage, int stages, int micro_batches) {
  internal_check(stages >= 1 && stage >= 0 && stage < stages, "a schedule's stage must be in [0, stages)");
  internal_check(micro_batches >= 1, "a schedule needs at least one micro-batch");
}

}  // namespace

void assign_slots(std::vector<Action>& actions) {
  std::map<std::pair<int, int>, int> slot_of;  // (micro-batch, chunk) in flight -> its slot
  std::vector<bool> taken;
  for (Action& action : actions) {
    const std::pair piece{action.micro_batch, action.chunk};
    if (action.kind == Action::Kind::forward) {
      const auto free = std::find(taken.begin(), taken.end(), false);
      action.slot = static_cast<int>(free - taken.begin());
      if (free == taken.end()) taken.push_back(true);
      taken[action.slot] = true;
      internal_check(slot_of.emplace(piece, action.slot).second, "a micro-batch is in flight twice in a schedule");
      continue;
    }
    const auto found = slot_of.find(piece);
    internal_check(found != slot_of.end(), "a schedule has a backward without a forward before it");
    action.slot = found->second;
    if (action.kind == Action::Kind::backward_input) continue;
    taken[action.slot] = false;
    slot_of.erase(found);
  }
}

int slot_count(const std::vector<Action>& actions) {
  int count = 0;
  for (const Action& action : actions) count = std::max(count, action.slot + 1);
  return count;
}

std::vector<Action> gpipe(int stage, int stages, int micro_batches) {
  check_arguments(stage, stages, micro_batches);
  std::vector<Action> actions;
  actions.reserve(2 * micro_batches);
  for (int i = 0; i < micro_batches; ++i) actions.push_back({.kind = Action::Kind::forward, .micro_batch = i});
  for (int i = 0; i < micro_batches; ++i) actions.push_back({.kind = Action::Kind::backward, .micro_batch = i});
  assign_slots(actions);
  return actions;
}

std::vector<Action> one_f_one_b(int stage, int stages, int micro_batches) {
  check_arguments(stage, stages, micro_batches);
  const int warm_up = std::min(stages - stage - 1, micro_batches);
  std::vector<Action> actions;
  actions.reserve(2 * micro_batches);
  int forwards = 0, backwards = 0;
  while (forwards < warm_up) actions.push_back({.kind = Action::Kind::forward, .micro_batch = forwards++});
  while (forwards < micro_batches) {
    actions.push_back({.kind = Action::Kind::forward, .micro_batch = forwards++});
    actions.push_back({.kind = Action::Kind::backward, .micro_batch = backwards++});
  }
  while (backwards < micro_batches) actions.push_back({.kind = Action::Kind::backward, .micro_batch = backwards++});
  assign_slots(actions);
  return actions;
}

std::vector<Action> forward_only(int stage, int stages, int micro_batches, int slots) {
  check_arguments(stage, stages, micro_batches);
  internal_check(slots > 0, "a schedule without slots");
  std::vector<Action> actions;
  actions.reserve(micro_batches);
  for (int i = 0; i < micro_batches; ++i) {
    actions.push_back({.kind = Action::Kind::forward, .micro_batch = i, .slot = i % slots});
  }
  return actions;
}

std::vector<Action> make_schedule(const std::string& name, int stage, int stages, int micro_batches) {
  if (name == "1f1b") return one_f_one_b(stage, stages, micro_batches);
  if (name == "gpipe") return gpipe(stage, stages, micro_batches);
  fail(ErrorKind::configuration, "parallel.schedule = \"{}\" is not available: use \"1f1b\" or \"gpipe\"", name);
}

std::vector<std::vector<Action>> make_schedules(const std::string& name, int stages, int micro_batches) {
  std::vector<std::vector<Action>> lists;
  lists.reserve(stages);
  for (int stage = 0; stage < stages; ++stage) lists.push_back(make_schedule(name, stage, stages, micro_batches));
  return lists;
}

}  // namespace megatron
