#include "planning/layout_search/step_time.h"

#include <algorithm>
#include <map>

#include "config/schema/layer_split.h"
#include "config/schema/run_schedule.h"
#include "models/families/family.h"
#include "planning/layout_search/recording.h"
#include "training/step/grid.h"

namespace megatron {

namespace {

// Micro-batches that are played: the first's forward and the last's backward differ from others. The first's backward
// sets gradients that others add to, and yet stands for those in between, without the time to read these sums. Where
// gradients are divided, it differs more, since it finds no sums in flight: then a third is played. But with several
// chunks it finds another's, and more micro-batches than there are stages would be in flight.
constexpr std::int64_t kMostPlayed = 3;
std::int64_t played_of(const Config& config) {
  return config.optimizer.shares().gradients && config.parallel.virtual_stages == 1 ? kMostPlayed : 2;
}

// The same run, in which steps of few micro-batches occur too.
Config with_short_steps(Config config) {
  const std::int64_t whole = config.train.global_batch_size,
                     few = played_of(config) * config.train.micro_batch_size * config.parallel.data;
  config.train.batch_ramp_up = {};
  config.train.curriculum = {};
  if (few < whole) config.train.batch_ramp_up = {.start = few, .increment = whole - few, .samples = whole};
  return config;
}

// Stages with the same key do the same: as many layers of each kind in every chunk, at the same place of the model.
std::string kind_of_stage(const Config& config, int stage, const std::vector<std::int64_t>& chunks) {
  const auto stages = static_cast<std::size_t>(config.parallel.pipeline);
  const std::int64_t encoder = config.model.has_decoder() ? config.model.layers : config.model.all_layers();
  std::string key;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (i % stages == static_cast<std::size_t>(stage)) {
      if (i == 0) key += 'f';
      if (i + 1 == chunks.size()) key += 'l';
      for (std::int64_t layer = first; layer < first + chunks[i]; ++layer) {
        const std::int64_t in_stack = layer < encoder ? layer : layer - encoder;
        key += layer < encoder ? 'n' : 'd';
        if (config.model.moe.in_layer(in_stack)) key += 'm';
        if (layer == encoder && config.model.has_decoder()) key += 'b';
      }
      key += '|';
    }
    first += chunks[i];
  }
  return key;
}

// `config` is played; memory is also for steps with `counts` micro-batches.
RecordedLayout::PlayedStage play_stage(const Config& config, const std::vector<std::int64_t>& counts,
                                       const GridShape& shape, int stage, int ranks_per_node) {
  const ModelFamily& family = family_of(config.model);
  Recorder recorder(ranks_per_node, on_host_memory(config.run), config.precision.dtype());
  CountingJob job(config, shape, {.pipeline = stage}, planned_transport(config.run), &recorder);
  Replica replica(config, job.grid, job.backend, family, Replica::Unlimited{counts});
  const std::int64_t count = micro_batch_counts(config).front();
  Arena batch("batch");
  const std::vector<MicroBatch> micro_batches = sizing_micro_batches(config, family, count, batch);
  Timers timers;
  timers.set_ranges(&recorder);
  const std::vector<double> loss_counts(family.loss_terms(config).size(), 1);
  recorder.recording = true;
  for (std::int64_t step = 1; step <= 2; ++step) {  // the first leaves gathers for the second to wait for
    recorder.add(StepBegins{});
    const StepSums sums = replica.forward_backward(micro_batches, step, {.counts = loss_counts}, timers);
    replica.update(sums, {}, timers);
  }
  recorder.recording = false;
  RecordedLayout::PlayedStage played;
  played.memory = memory_of({config, job, replica, family});
  static_cast<MemoryUse&>(played.memory) = played.memory.fullest;
  played.recording = std::move(recorder.result);
  played.actions = make_schedule(config.parallel.schedule, stage, shape.pipeline, static_cast<int>(count),
                                 static_cast<int>(config.parallel.virtual_stages));
  return played;
}

/// Seconds of a stage's actions by what they are: the first, the last and the others of their kind and chunk.
class StageTimes {
 public:
  StageTimes(const RecordedLayout::PlayedStage& stage, const Hardware& hardware, int micro_batches)
      : step_(time_recording(stage.recording, hardware)), last_(micro_batches - 1) {
    internal_check(step_.actions.size() == stage.actions.size(), "a recording of other actions than were played",
                   step_.actions.size(), stage.actions.size());
    for (const Action& action : stage.actions) played_ = std::max(played_, action.micro_batch);
    for (std::size_t i = 0; i < stage.actions.size(); ++i) {
      const Action& action = stage.actions[i];
      places_[key(action.kind, action.chunk, action.micro_batch)] = i;
    }
  }

  const TimedStep& step() const { return step_; }
  const TimedAction& of(const Action& action) const {
    // The first forward waits for gathers, the last backward starts sums.
    const bool forward = action.kind == Action::Kind::forward;
    const int other = forward ? played_ : std::max(played_ - 1, 0);
    const int played = action.micro_batch == 0 ? 0 : action.micro_batch == last_ ? played_ : other;
    return step_.actions[places_.at(key(action.kind, action.chunk, played))];
  }

 private:
  static int key(Action::Kind kind, int chunk, int micro_batch) {
    return (chunk * 4 + static_cast<int>(kind)) * static_cast<int>(kMostPlayed) + micro_batch;
  }

  TimedStep step_;
  int last_, played_ = 0;
  std::map<int, std::size_t> places_;
};

/// Times that clocks give for a layout on a machine.
class TimedLayout {
 public:
  TimedLayout(const RecordedLayout& layout, const Hardware& hardware) : layout_(layout), hardware_(hardware) {
    for (const RecordedLayout::PlayedStage& stage : layout.played) {
      times_.emplace_back(stage, hardware, layout.micro_batches);
    }
  }

  const StageTimes& stage(int number) const {
    return times_[static_cast<std::size_t>(layout_.stage_to_played[static_cast<std::size_t>(number)])];
  }

  /// Time of the bytes that a stage's action sends to that neighbour.
  double transfer_seconds(double bytes, bool across) const {
    const Software& software = hardware_.used;
    const double tensor = static_cast<double>(layout_.config.parallel.tensor);
    const double node = hardware_.node.bandwidth * software.node_efficiency;
    if (!across && !hardware_.links.messages.empty()) return hardware_.links.messages.at(bytes);
    if (!across) return bytes / node + hardware_.node.latency;
    const double network = hardware_.network.bandwidth * software.network_efficiency;
    const bool whole = !layout_.config.parallel.sequence_parallel;
    if (!software.scatter_gather || !whole || tensor == 1) return bytes / network + hardware_.network.latency;
    const double gather = node > 0 ? node : network;  // a node of one rank has no links
    return bytes / tensor / network + bytes * (tensor - 1) / tensor / gather + hardware_.network.latency;
  }

  Simulation simulate_schedule() const {
    const auto stages = static_cast<int>(layout_.schedules.size());
    SimulationOptions options;
    options.gradient_buffers =
        gradient_buffers(stages, layout_.micro_batches, static_cast<int>(layout_.config.parallel.virtual_stages));
    const bool blocks = hardware_.used.blocking_transfers;
    options.seconds = [this, blocks, stages](int number, const Action& action, double start) {
      const TimedAction& timed = stage(number).of(action);
      double seconds = timed.seconds.total() + timed.waited_from(start);
      if (blocks && timed.sent_bytes > 0) {
        const int from = action.kind == Action::Kind::forward ? number : (number + stages - 1) % stages;
        seconds += transfer_seconds(timed.sent_bytes, layout_.crosses_nodes[static_cast<std::size_t>(from)]);
      }
      return seconds;
    };
    if (!blocks) {
      options.transfer = [this, stages](int from, int to) {
        const bool forwards = to == (from + 1) % stages;
        const int lower = forwards ? from : to;
        return transfer_seconds(largest_message(from), layout_.crosses_nodes[static_cast<std::size_t>(lower)]);
      };
    }
    return simulate(layout_.schedules, options);
  }

 private:
  double largest_message(int number) const {
    double bytes = 0;
    for (const TimedAction& action : stage(number).step().actions) bytes = std::max(bytes, action.sent_bytes);
    return bytes;
  }

  const RecordedLayout& layout_;
  const Hardware& hardware_;
  std::vector<StageTimes> times_;
};

}  // namespace

std::size_t RecordedLayout::most_bytes() const {
  std::size_t most = 0;
  for (const PlayedStage& stage : played) most = std::max(most, stage.memory.total());
  return most;
}

const RecordedLayout::PlayedStage& RecordedLayout::stage(int number) const {
  return played[static_cast<std::size_t>(stage_to_played[static_cast<std::size_t>(number)])];
}

void RecordedLayout::set_micro_batches(int count) {
  micro_batches = count;
  schedules = make_schedules(config.parallel.schedule, static_cast<int>(config.parallel.pipeline), count,
                             static_cast<int>(config.parallel.virtual_stages));
}

bool fits(const RecordedLayout& layout, double limit_bytes) {
  return static_cast<double>(layout.most_bytes()) <= limit_bytes;
}

RecordedLayout record_layout(const Config& config, int ranks_per_node, double limit_bytes) {
  RecordedLayout layout{.config = config};
  const GridShape shape = grid_shape(config);
  layout.micro_batches = static_cast<int>(micro_batches_per_step(config));
  const Config played = with_short_steps(config);
  const std::vector<std::int64_t> counts =
      config.train.batch_ramp_up.start > 0 ? micro_batch_counts(config) : std::vector<std::int64_t>();
  const std::vector<std::int64_t> chunks = layers_per_chunk(config.model, config.parallel);
  std::map<std::string, int> kinds;
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    const auto [kind, is_new] =
        kinds.try_emplace(kind_of_stage(config, stage, chunks), static_cast<int>(layout.played.size()));
    if (is_new) layout.played.push_back(play_stage(played, counts, shape, stage, ranks_per_node));
    layout.stage_to_played.push_back(kind->second);
    if (limit_bytes > 0 && !fits(layout, limit_bytes)) return layout;
  }
  layout.set_micro_batches(layout.micro_batches);
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    const int here = rank_of({.pipeline = stage}, shape),
              there = rank_of({.pipeline = (stage + 1) % shape.pipeline}, shape);
    layout.crosses_nodes.push_back(here / ranks_per_node != there / ranks_per_node);
  }
  return layout;
}

Simulation simulate_step(const RecordedLayout& layout, const Hardware& hardware) {
  return TimedLayout(layout, hardware).simulate_schedule();
}

StepTime step_time(const RecordedLayout& layout, const Hardware& hardware) {
  const TimedLayout timed(layout, hardware);
  const Simulation simulation = timed.simulate_schedule();
  internal_check(!simulation.deadlock, "a schedule that stands still");
  StepTime time;
  time.schedule_seconds = simulation.makespan;
  time.bubble = simulation.bubble_fraction;
  double ready = 0, most = 0;
  for (int stage = 0; stage < static_cast<int>(layout.schedules.size()); ++stage) {
    const auto& spans = simulation.spans[static_cast<std::size_t>(stage)];
    double busy = 0;
    for (const Simulation::Span& span : spans) busy += span.finish - span.start;
    time.stage_seconds.push_back(busy);
    const TimedStep& step = timed.stage(stage).step();
    const double end = spans.empty() ? 0 : spans.back().finish;
    ready = std::max(ready, end + step.sums.total());
    time.update_seconds = std::max(time.update_seconds, step.update.total());
    if (busy + step.sums.total() > most) {
      most = busy + step.sums.total();
      time.busiest_stage = stage;
    }
  }
  time.seconds = ready + time.update_seconds;
  const auto busiest = static_cast<std::size_t>(time.busiest_stage);
  for (std::size_t i = 0; i < layout.schedules[busiest].size(); ++i) {
    const TimedAction& action = timed.stage(time.busiest_stage).of(layout.schedules[busiest][i]);
    time.costs.add(action.seconds);
    time.costs[Cost::copies] += action.waited_from(simulation.spans[busiest][i].start);
  }
  time.sums_seconds = timed.stage(time.busiest_stage).step().sums.total();
  time.idle_seconds = ready - time.sums_seconds - time.costs.total();
  const Config& config = layout.config;
  const double tokens =
      static_cast<double>(config.train.global_batch_size) * static_cast<double>(config.model.sequence_length);
  time.tokens_per_second = tokens / time.seconds;
  time.model_flops_share = time.tokens_per_second * flops_per_token(config.model).model /
                           (hardware.peak(config.precision.dtype()) * grid_shape(config).ranks());
  return time;
}

double run_seconds(const RecordedLayout& layout, const Hardware& hardware) {
  const RunSchedule schedule(layout.config);
  const std::int64_t steps = layout.config.train.steps;
  const std::vector<BatchSchedule::Level>& levels = schedule.batches().levels();
  if (levels.size() == 1) {
    return static_cast<double>(schedule.tokens_after(steps)) / step_time(layout, hardware).tokens_per_second;
  }
  double seconds = 0;
  RecordedLayout smaller = layout;
  for (std::size_t i = 0; i < levels.size() && levels[i].first_step < steps; ++i) {
    const std::int64_t end = i + 1 < levels.size() ? std::min(steps, levels[i + 1].first_step) : steps;
    smaller.set_micro_batches(
        static_cast<int>(levels[i].batch / (layout.config.train.micro_batch_size * layout.config.parallel.data)));
    seconds += static_cast<double>(end - levels[i].first_step) * step_time(smaller, hardware).seconds;
  }
  return seconds;
}

}  // namespace megatron
