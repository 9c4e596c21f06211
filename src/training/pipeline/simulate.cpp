#include "training/pipeline/simulate.h"

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

namespace {

/// From one stage to a neighbour, one direction of the model. Sends and receives meet by their numbers.
struct Channel {
  struct End {
    double time;
    int what;  // the message that is meant
  };
  std::vector<End> sends, receives;
  double transfer = 0;  // seconds
};

/// A started send: when it has been received is the channel's to say.
struct Sent {
  const Channel* channel = nullptr;
  std::size_t number = 0;
};

class Simulator {
 public:
  Simulator(const std::vector<std::vector<Action>>& schedules, const SimulationOptions& options)
      : schedules_(schedules), options_(options), stages_(static_cast<int>(schedules.size())) {
    internal_check(stages_ >= 1, "a simulation needs at least one stage", stages_);
    for (const auto& list : schedules) {
      for (const Action& action : list) {
        chunks_ = std::max(chunks_, action.chunk + 1);
        micro_batches_ = std::max(micro_batches_, action.micro_batch + 1);
      }
    }
    outputs_.resize(schedules.size());
    gradients_.resize(schedules.size());
    for (int stage = 0; options.transfer && stage < stages_; ++stage) {
      outputs_[stage].transfer = options.transfer(stage, (stage + 1) % stages_);
      gradients_[stage].transfer = options.transfer(stage, (stage + stages_ - 1) % stages_);
    }
    state_.resize(schedules.size());
    for (int stage = 0; stage < stages_; ++stage) {
      state_[stage].slot_sends.resize(slot_count(schedules[stage]));
      state_[stage].receives.assign(schedules[stage].size(), kNotPosted);
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

  static constexpr std::size_t kNotPosted = static_cast<std::size_t>(-1);

  struct StageState {
    std::size_t next = 0;  // action being performed
    Phase phase = Phase::begin;
    double clock = 0;
    std::vector<std::vector<Sent>> slot_sends;  // by slot: outputs not known to have been received
    std::vector<Sent> gradient_sends;           // all, in order
    std::vector<std::size_t> receives;          // by action: its receive's number in its channel
    Sent last_send;                             // by the action in phase send
  };

  /// A place of the message between two pieces of the model, and the channel it travels on; none at the ends.
  struct Link {
    Channel* channel = nullptr;
    int what = 0;
  };

  Link link(std::vector<Channel>& channels, int stage, int position, int micro_batch) {
    return {&channels[stage], position * micro_batches_ + micro_batch};
  }

  /// The input that `action` cannot start without. A `backward_weight` needs nothing.
  Link needed(int stage, const Action& action) {
    const int at = action.chunk * stages_ + stage, last = stages_ * chunks_ - 1;
    if (action.kind == Action::Kind::backward_weight) return {};
    if (action.kind == Action::Kind::forward) {
      return at == 0 ? Link{} : link(outputs_, (stage + stages_ - 1) % stages_, at - 1, action.micro_batch);
    }
    return at == last ? Link{} : link(gradients_, (stage + 1) % stages_, at + 1, action.micro_batch);
  }

  Link produced(int stage, const Action& action) {
    const int at = action.chunk * stages_ + stage, last = stages_ * chunks_ - 1;
    if (action.kind == Action::Kind::backward_weight) return {};
    if (action.kind == Action::Kind::forward) {
      return at == last ? Link{} : link(outputs_, stage, at, action.micro_batch);
    }
    return at == 0 ? Link{} : link(gradients_, stage, at, action.micro_batch);
  }

  double seconds(int stage, const Action& action, double start) const {
    if (options_.seconds) return options_.seconds(stage, action, start);
    switch (action.kind) {
      case Action::Kind::forward: return options_.forward_seconds;
      case Action::Kind::backward: return options_.backward_seconds;
      case Action::Kind::backward_input: return options_.backward_seconds * options_.input_share;
      case Action::Kind::backward_weight: return options_.backward_seconds * (1 - options_.input_share);
    }
    return 0;
  }

  /// When the message is in the receiver's memory, if that is known by now.
  std::optional<double> arrival(const Channel& channel, std::size_t number) const {
    if (number >= channel.sends.size()) return std::nullopt;
    if (options_.sends == SendMode::buffered) return channel.sends[number].time + channel.transfer;
    if (number >= channel.receives.size()) return std::nullopt;
    return std::max(channel.sends[number].time, channel.receives[number].time) + channel.transfer;
  }

  void post_receive(int stage, std::size_t index) {
    if (index >= schedules_[stage].size() || state_[stage].receives[index] != kNotPosted) return;
    const Link wanted = needed(stage, schedules_[stage][index]);
    if (wanted.channel == nullptr) return;
    state_[stage].receives[index] = wanted.channel->receives.size();
    wanted.channel->receives.push_back({state_[stage].clock, wanted.what});
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
      case Phase::send: return complete_send(stage);
    }
    return false;
  }

  bool start(int stage, const Action& action) {
    StageState& state = state_[stage];
    if (!memory_is_free(stage, action)) return false;
    post_receive(stage, state.next);
    double clock = state.clock;
    if (const Channel* channel = needed(stage, action).channel) {
      const std::size_t number = state.receives[state.next];
      const auto arrived = arrival(*channel, number);
      if (!arrived || channel->sends[number].what != channel->receives[number].what) return false;
      clock = std::max(clock, *arrived);
    }
    const double finish = clock + seconds(stage, action, clock);
    result_.spans[stage][state.next] = {clock, finish};
    state.clock = finish;
    state.last_send = {};
    if (const Link output = produced(stage, action); output.channel != nullptr) {
      state.last_send = {output.channel, output.channel->sends.size()};
      output.channel->sends.push_back({finish, output.what});
      if (action.kind == Action::Kind::forward) {
        state.slot_sends[action.slot].push_back(state.last_send);
      } else {
        state.gradient_sends.push_back(state.last_send);
      }
    }
    state.phase = Phase::send;
    return true;
  }

  /// Waits until what the action writes for a neighbour may be overwritten: a forward for its slot, whose earlier
  /// output must have been received; a gradient for its buffer. False while it is not.
  bool memory_is_free(int stage, const Action& action) {
    StageState& state = state_[stage];
    if (action.kind == Action::Kind::forward) {
      std::vector<Sent>& outputs = state.slot_sends[action.slot];
      for (const Sent& sent : outputs) {
        if (!wait_for(state, sent)) return false;
      }
      outputs.clear();
      return true;
    }
    const auto buffers = static_cast<std::size_t>(options_.gradient_buffers), sends = state.gradient_sends.size();
    const bool writes = produced(stage, action).channel != nullptr;
    return !writes || sends < buffers || wait_for(state, state.gradient_sends[sends - buffers]);
  }

  bool wait_for(StageState& state, const Sent& sent) const {
    if (options_.sends == SendMode::buffered) return true;
    const auto received = arrival(*sent.channel, sent.number);
    if (received) state.clock = std::max(state.clock, *received);
    return received.has_value();
  }

  bool complete_send(int stage) {
    StageState& state = state_[stage];
    if (options_.sends == SendMode::synchronous && state.last_send.channel != nullptr) {
      if (!wait_for(state, state.last_send)) return false;
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
        const Simulation::Span& span = result_.spans[stage][i];
        busy += span.finish - span.start;
        result_.makespan = std::max(result_.makespan, span.finish);
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
    std::string reason = "for its input";
    const std::size_t number = state_[stage].receives[state_[stage].next];
    const Channel* channel = needed(stage, action).channel;
    if (state_[stage].phase == Phase::send) {
      reason = "for its send to be received";
    } else if (!memory_is_free(stage, action)) {
      reason = action.kind == Action::Kind::forward ? "for a slot whose output has not been received"
                                                    : "for a gradient buffer that has not been received";
    } else if (channel != nullptr && number < channel->sends.size()) {
      const int what = channel->sends[number].what;
      reason = fmt::format("for its input and gets micro-batch {}'s of piece {} of the model", what % micro_batches_,
                           what / micro_batches_);
    }
    result_.explanation += fmt::format(
        "stage {}, action {} ({} of micro-batch {}, chunk {}) waits {}\n", stage, state_[stage].next,
        action.kind == Action::Kind::forward ? "forward" : "backward", action.micro_batch, action.chunk, reason);
  }

  const std::vector<std::vector<Action>>& schedules_;
  const SimulationOptions& options_;
  int stages_, chunks_ = 1, micro_batches_ = 1;
  std::vector<Channel> outputs_, gradients_;  // by sending stage
  std::vector<StageState> state_;
  Simulation result_;
};

}  // namespace

Simulation simulate(const std::vector<std::vector<Action>>& schedules, const SimulationOptions& options) {
  return Simulator(schedules, options).run();
}

std::optional<double> analytic_bubble(const std::string& schedule, int stages, int micro_batches, int chunks) {
  return schedule_named(schedule).bubble(stages, micro_batches, chunks);
}

}  // namespace megatron
