#include "pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace megatron {

namespace {

constexpr double kNotYet = -1;

/// One tensor on its way between two neighbouring chunks.
struct Message {
  double sent = kNotYet, receive_posted = kNotYet;
};

class Simulator {
 public:
  Simulator(const std::vector<std::vector<Action>>& schedules, const SimulationOptions& options)
      : schedules_(schedules), options_(options), stages_(static_cast<int>(schedules.size())) {
    internal_check(stages_ >= 1, "a simulation needs at least one stage");
    for (const auto& list : schedules) {
      for (const Action& action : list) {
        chunks_ = std::max(chunks_, action.chunk + 1);
        micro_batches_ = std::max(micro_batches_, action.micro_batch + 1);
      }
    }
    const auto messages = static_cast<std::size_t>(stages_) * chunks_ * micro_batches_;
    outputs_.resize(messages);
    gradients_.resize(messages);
    state_.resize(stages_);
    for (int stage = 0; stage < stages_; ++stage) {
      state_[stage].slot_sends.resize(slot_count(schedules[stage]));
      result_.spans.emplace_back(schedules[stage].size());
    }
  }

  Simulation run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int stage = 0; stage < stages_; ++stage) {
        while (advance(stage)) progress = true;
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  enum class Phase { begin, start, send };

  struct StageState {
    std::size_t next = 0;  // action being performed
    Phase phase = Phase::begin;
    double clock = 0;
    std::vector<std::vector<Message*>> slot_sends;  // by slot: sends not known to have been received
  };

  int position(int stage, const Action& action) const { return action.chunk * stages_ + stage; }
  Message& output(int position, int micro_batch) { return outputs_[position * micro_batches_ + micro_batch]; }
  Message& gradient(int position, int micro_batch) { return gradients_[position * micro_batches_ + micro_batch]; }

  /// The message that `action` cannot start without; none at the ends of the model. A `backward_weight` needs nothing.
  Message* needed(int stage, const Action& action) {
    const int at = position(stage, action), last = stages_ * chunks_ - 1;
    if (action.kind == Action::Kind::forward) return at == 0 ? nullptr : &output(at - 1, action.micro_batch);
    if (action.kind == Action::Kind::backward_weight || at == last) return nullptr;
    return &gradient(at + 1, action.micro_batch);
  }

  Message* produced(int stage, const Action& action) {
    const int at = position(stage, action), last = stages_ * chunks_ - 1;
    if (action.kind == Action::Kind::forward) return at == last ? nullptr : &output(at, action.micro_batch);
    if (action.kind == Action::Kind::backward_weight || at == 0) return nullptr;
    return &gradient(at, action.micro_batch);
  }

  double seconds(Action::Kind kind) const {
    switch (kind) {
      case Action::Kind::forward: return options_.forward_seconds;
      case Action::Kind::backward: return options_.backward_seconds;
      case Action::Kind::backward_input: return options_.backward_seconds * options_.input_share;
      case Action::Kind::backward_weight: return options_.backward_seconds * (1 - options_.input_share);
    }
    return 0;
  }

  /// When the message is in the receiver's memory, if that is known by now.
  std::optional<double> arrival(const Message& message) const {
    if (message.sent == kNotYet) return std::nullopt;
    if (options_.sends == SendMode::buffered) return message.sent;
    if (message.receive_posted == kNotYet) return std::nullopt;
    return std::max(message.sent, message.receive_posted);
  }

  void post_receive(int stage, std::size_t index) {
    if (index >= schedules_[stage].size()) return;
    Message* message = needed(stage, schedules_[stage][index]);
    if (message != nullptr && message->receive_posted == kNotYet) message->receive_posted = state_[stage].clock;
  }

  /// Takes `stage` one phase further; false if it must wait or is done.
  bool advance(int stage) {
    StageState& state = state_[stage];
    if (state.next >= schedules_[stage].size()) return false;
    const Action& action = schedules_[stage][state.next];
    switch (state.phase) {
      case Phase::begin:
        if (options_.receive_ahead) {
          post_receive(stage, state.next);
          post_receive(stage, state.next + 1);
        }
        state.phase = Phase::start;
        return true;
      case Phase::start: return start(stage, action);
      case Phase::send: return complete_send(stage, action);
    }
    return false;
  }

  bool start(int stage, const Action& action) {
    StageState& state = state_[stage];
    if (action.kind == Action::Kind::forward && !slot_is_free(state, action.slot)) return false;
    post_receive(stage, state.next);
    double clock = state.clock;
    if (const Message* message = needed(stage, action)) {
      const auto arrived = arrival(*message);
      if (!arrived) return false;
      clock = std::max(clock, *arrived);
    }
    const double finish = clock + seconds(action.kind);
    result_.spans[stage][state.next] = {clock, finish};
    state.clock = finish;
    if (Message* message = produced(stage, action)) {
      message->sent = finish;
      state.slot_sends[action.slot].push_back(message);
    }
    state.phase = Phase::send;
    return true;
  }

  /// Waits for the slot's earlier sends to be received; false while one is not.
  bool slot_is_free(StageState& state, int slot) const {
    auto& sends = state.slot_sends[slot];
    if (options_.sends == SendMode::buffered) sends.clear();
    for (const Message* message : sends) {
      const auto received = arrival(*message);
      if (!received) return false;
      state.clock = std::max(state.clock, *received);
    }
    sends.clear();
    return true;
  }

  bool complete_send(int stage, const Action& action) {
    StageState& state = state_[stage];
    if (options_.sends == SendMode::synchronous) {
      if (const Message* message = produced(stage, action)) {
        const auto received = arrival(*message);
        if (!received) return false;
        state.clock = std::max(state.clock, *received);
      }
    }
    ++state.next;
    state.phase = Phase::begin;
    return true;
  }

  void finish() {
    double busy = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const auto& list = schedules_[stage];
      int in_flight = 0, most = 0;
      for (std::size_t i = 0; i < state_[stage].next; ++i) {
        busy += seconds(list[i].kind);
        result_.makespan = std::max(result_.makespan, result_.spans[stage][i].finish);
        if (list[i].kind == Action::Kind::forward) most = std::max(most, ++in_flight);
        if (list[i].kind == Action::Kind::backward || list[i].kind == Action::Kind::backward_weight) --in_flight;
      }
      result_.slots_in_flight.push_back(most);
      if (state_[stage].next < list.size()) explain(stage, list[state_[stage].next]);
    }
    if (result_.makespan > 0) result_.bubble_fraction = 1 - busy / (result_.makespan * stages_);
  }

  void explain(int stage, const Action& action) {
    result_.deadlock = true;
    const char* reason = "for its input";
    if (state_[stage].phase == Phase::send) {
      reason = "for its send to be received";
    } else if (action.kind == Action::Kind::forward && !slot_is_free(state_[stage], action.slot)) {
      reason = "for a slot whose sends nobody has received";
    }
    result_.explanation += fmt::format(
        "stage {}, action {} ({} of micro-batch {}, chunk {}) waits {}\n", stage, state_[stage].next,
        action.kind == Action::Kind::forward ? "forward" : "backward", action.micro_batch, action.chunk, reason);
  }

  const std::vector<std::vector<Action>>& schedules_;
  const SimulationOptions& options_;
  int stages_, chunks_ = 1, micro_batches_ = 1;
  std::vector<Message> outputs_, gradients_;
  std::vector<StageState> state_;
  Simulation result_;
};

char letter(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::forward: return 'F';
    case Action::Kind::backward:
    case Action::Kind::backward_input: return 'B';
    case Action::Kind::backward_weight: return 'W';
  }
  return '?';
}

}  // namespace

Simulation simulate(const std::vector<std::vector<Action>>& schedules, const SimulationOptions& options) {
  return Simulator(schedules, options).run();
}

std::string draw_schedules(const std::vector<std::vector<Action>>& schedules, int width) {
  const Simulation simulation = simulate(schedules, {.sends = SendMode::buffered});
  if (simulation.deadlock) return "the schedule cannot be played:\n" + simulation.explanation;
  int highest = 0;
  for (const auto& list : schedules) {
    for (const Action& action : list) highest = std::max(highest, action.micro_batch);
  }
  const std::size_t cell = fmt::formatted_size("F{} ", highest);
  const auto columns = static_cast<std::size_t>(std::lround(simulation.makespan));
  const std::size_t label = fmt::formatted_size("stage {:>3}  ", 0);
  const std::size_t room = static_cast<std::size_t>(width) > label + cell ? width - label - 3 : cell;
  const std::size_t shown = std::min(columns, room / cell);
  std::string text;
  for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
    std::string row;
    for (std::size_t i = 0; i < columns; ++i) row += fmt::format("{:<{}}", '.', cell);
    for (std::size_t i = 0; i < schedules[stage].size(); ++i) {
      const Action& action = schedules[stage][i];
      const auto [start, finish] = simulation.spans[stage][i];
      const std::size_t begin = cell * static_cast<std::size_t>(std::lround(start));
      const std::size_t length = cell * static_cast<std::size_t>(std::lround(finish - start)) - 1;
      const std::string name = fmt::format("{}{}", letter(action.kind), action.micro_batch);
      row.replace(begin, length, fmt::format("{:-<{}}", name, length));
    }
    row.resize(shown * cell);
    text += fmt::format("stage {:>3}  {}{}\n", stage, row, shown < columns ? "..." : "");
  }
  if (shown < columns) {
    text +=
        fmt::format("(the first {} of {} columns; a column is one forward, a backward takes two)\n", shown, columns);
  }
  return text;
}

}  // namespace megatron
