#include "planning/layout_search/clock.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "distributed/comm/process_grid.h"

namespace megatron {

const char* name_of(Cost cost) {
  switch (cost) {
    case Cost::products: return "products";
    case Cost::attention: return "attention";
    case Cost::memory: return "memory";
    case Cost::launches: return "launches";
    case Cost::tensor: return "tensor ranks";
    case Cost::experts: return "expert ranks";
    case Cost::copies: return "copies";
    case Cost::other: return "other ranks";
  }
  return "?";
}

double CostSeconds::total() const {
  return std::accumulate(by_cost.begin(), by_cost.end(), 0.0);
}

CostSeconds& CostSeconds::add(const CostSeconds& other, double times) {
  for (std::size_t i = 0; i < kCosts; ++i) by_cost[i] += times * other.by_cost[i];
  return *this;
}

double TimedAction::waited_from(double start) const {
  double waited = 0;
  for (const Arrival& arrival : arrivals) waited = std::max(waited, arrival.seconds - start - arrival.after);
  return waited;
}

namespace {

double memory_seconds(double bytes, const Hardware& hardware) {
  return bytes / (hardware.memory_bandwidth * hardware.used.memory_efficiency);
}

// Within a node, if it was measured between as many ranks.
const SecondsByBytes* measured_collective(Verb verb, const GroupFacts& group, const Hardware& hardware) {
  if (group.nodes > 1 || hardware.links.collectives.empty()) return nullptr;
  std::string key = name_of(verb);
  std::replace(key.begin(), key.end(), '-', '_');
  const auto found = hardware.links.collectives.find(key);
  if (found == hardware.links.collectives.end()) return nullptr;
  const auto of_ranks = found->second.find(group.ranks);
  return of_ranks == found->second.end() ? nullptr : &of_ranks->second;
}

Cost cost_of_group(const std::string& name) {
  if (name == "tensor") return Cost::tensor;
  if (name == "expert") return Cost::experts;
  for (const Group group :
       {Group::data, Group::copies, Group::expert_copies, Group::shards, Group::expert_shards, Group::replicas}) {
    if (name == name_of(group)) return Cost::copies;
  }
  return Cost::other;
}

class Player {
 public:
  Player(const Recording& recording, const Hardware& hardware)
      : recording_(recording), hardware_(hardware), lanes_(recording.groups.size()) {}

  TimedStep play() {
    for (const Event& event : recording_.events) {
      std::visit([&](const auto& each) { handle(each); }, event);
    }
    return std::move(step_);
  }

 private:
  void spend(Cost cost, double seconds) {
    clock_ += seconds;
    (*charged_)[cost] += seconds;
  }
  void launch() { spend(Cost::launches, hardware_.used.launch); }

  void handle(const ProductWork& work) {
    spend(Cost::products, product_seconds(work, hardware_));
    launch();
  }
  void handle(const AttentionWork& work) {
    spend(Cost::attention, attention_seconds(work, hardware_));
    launch();
  }
  void handle(const MemoryWork& work) {
    spend(Cost::memory, operation_seconds(work, recording_.type, hardware_));
    launch();
  }
  void handle(const StartedCollective& started) {
    const GroupFacts& group = recording_.groups[static_cast<std::size_t>(started.group)];
    const Cost cost = cost_of_group(group.name);
    double seconds = collective_seconds(started.verb, started.bytes, group, hardware_);
    if (cost == Cost::tensor) seconds *= 1 - hardware_.used.tensor_overlap;
    double& lane = lanes_[static_cast<std::size_t>(started.group)];
    const auto ticket = static_cast<std::size_t>(started.ticket);
    if (ticket >= in_flight_.size()) in_flight_.resize(ticket + 1);
    const bool overlaps = cost != Cost::copies || hardware_.used.copies_overlap;
    if (overlaps) lane = std::max(lane, clock_) + seconds;
    in_flight_[ticket] = {lane, overlaps ? 0 : seconds, started.group, steps_, cost};
    if (cost == Cost::tensor && hardware_.used.tensor_blocking) handle(Waited{started.ticket});
  }
  void handle(const Waited& waited) {
    const auto ticket = static_cast<std::size_t>(waited.ticket);
    if (ticket >= in_flight_.size()) return;  // started before the recording
    const InFlight& flight = in_flight_[ticket];
    if (flight.seconds == 0 && flight.step < steps_ && in_action_) {
      // How long this takes depends on when the schedule lets the action begin.
      step_.actions.back().arrivals.push_back({clock_ - action_begin_, flight.end - step_begin_});
      double& lane = lanes_[static_cast<std::size_t>(flight.group)];
      if (lane <= flight.end) lane = clock_;  // free, once this is there
      return;
    }
    spend(flight.cost, std::max(0.0, flight.end - clock_) + flight.seconds);
    in_flight_[ticket].seconds = 0;
  }
  void handle(const SentMessage& sent) {
    if (!step_.actions.empty()) step_.actions.back().sent_bytes += sent.bytes;
  }
  void handle(const EnteredSection& entered) {
    if (entered.section == Section::forward || entered.section == Section::backward) {
      charged_ = &step_.actions.emplace_back().seconds;
      in_action_ = true;
      action_begin_ = clock_;
    } else if (entered.section == Section::optimizer) {
      charged_ = &step_.update;
    }
  }
  void handle(const LeftSection&) {
    charged_ = &step_.sums;
    in_action_ = false;
  }
  void handle(const StepBegins&) {
    step_ = {};
    step_.actions.reserve(64);
    charged_ = &step_.sums;
    step_begin_ = clock_;
    ++steps_;
  }

  struct InFlight {
    double end = 0, seconds = 0;
    int group = 0, step = 0;
    Cost cost = Cost::other;
  };

  const Recording& recording_;
  const Hardware& hardware_;
  std::vector<double> lanes_;
  std::vector<InFlight> in_flight_;  // by ticket
  double clock_ = 0, step_begin_ = 0, action_begin_ = 0;
  int steps_ = 0;  // that have begun
  bool in_action_ = false;
  TimedStep step_;
  CostSeconds* charged_ = &step_.sums;
};

}  // namespace

double product_seconds(const ProductWork& work, const Hardware& hardware) {
  const double flops = 2 * work.rows * work.columns * work.inner;
  if (flops == 0) return 0;
  const RateTable<3>& measured = hardware.rates(work.type).of(work.kind);
  if (!measured.empty()) return flops / measured.at({work.rows, work.columns, work.inner});
  const Software& software = hardware.used;
  const double smallest = std::min({work.rows, work.columns, work.inner});
  const double rate =
      hardware.peak(work.type) * software.product_efficiency * smallest / (smallest + software.product_half);
  return std::max(flops / rate, memory_seconds(work.bytes, hardware));
}

double operation_seconds(const MemoryWork& work, DType type, const Hardware& hardware) {
  const auto& measured = hardware.rates(type).others;
  if (measured.empty() || work.bytes == 0) return memory_seconds(work.bytes, hardware);
  const auto found = measured.find(work.key());
  return found == measured.end() ? memory_seconds(work.bytes, hardware) : found->second.in_proportion(work.bytes);
}

// In programs that keep the scores, a backward passes over them twice as often as a forward.
double attention_seconds(const AttentionWork& work, const Hardware& hardware) {
  if (work.flops == 0) return 0;
  const RateTable<2>& measured = hardware.rates(work.type).of(work.kind());
  if (!measured.empty()) return work.flops / measured.at({work.length, work.head_size});
  const Software& software = hardware.used;
  const double rate = hardware.peak(work.type) * software.attention_efficiency;
  if (software.attention_score_passes == 0) return std::max(work.flops / rate, memory_seconds(work.bytes, hardware));
  const double scores = work.scores * static_cast<double>(size_of(work.type));
  return work.square_flops / rate +
         memory_seconds(scores * software.attention_score_passes * (work.backward ? 2 : 1), hardware);
}

// Bandwidth as rings have it: each byte crosses each level once, and the ranks of a node share the work of crossing to
// other nodes. Latency as trees have it.
double collective_seconds(Verb verb, double bytes, const GroupFacts& group, const Hardware& hardware) {
  const Software& software = hardware.used;
  if (group.ranks <= 1) return 0;
  if (const SecondsByBytes* measured = measured_collective(verb, group, hardware)) return measured->at(bytes);
  const double node = hardware.node.bandwidth * software.node_efficiency,
               network = hardware.network.bandwidth * software.network_efficiency;
  const auto others = [](int count) { return static_cast<double>(count - 1) / count; };
  const double steps = std::ceil(std::log2(group.ranks));
  const LinkLevel& slowest = group.nodes > 1 ? hardware.network : hardware.node;
  if (verb == Verb::send) return bytes / (group.nodes > 1 ? network : node) + slowest.latency;
  if (verb == Verb::all_to_all) {  // every rank has parts for every other one
    const double outside = static_cast<double>(group.ranks - group.ranks_on_node) / group.ranks;
    return std::max(bytes * outside / network, bytes * (others(group.ranks) - outside) / node) +
           slowest.latency * steps;
  }
  const double rounds = verb == Verb::all_reduce ? 2 : 1;
  const double inside = group.ranks_on_node > 1 ? others(group.ranks_on_node) * bytes / node : 0;
  const double across = group.nodes > 1 ? others(group.nodes) * bytes / (network * group.ranks_on_node) : 0;
  return rounds * (std::max(inside, across) + slowest.latency * steps);
}

TimedStep time_recording(const Recording& recording, const Hardware& hardware) {
  return Player(recording, hardware).play();
}

}  // namespace megatron
