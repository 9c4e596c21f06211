#include "planning/dry_run/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/system/memory_usage.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "config/rules/exchange_rules.h"
#include "config/schema/run_schedule.h"
#include "models/families/flops.h"
#include "models/families/layers.h"
#include "planning/dry_run/group_members.h"
#include "planning/dry_run/state_text.h"
#include "training/pipeline/schedule.h"
#include "training/pipeline/simulate.h"
#include "training/step/grid.h"

namespace megatron {

namespace {

// Playing one by one takes some microseconds per pass through a layer, and tenths of one per rank and stage.
constexpr std::int64_t kMostPasses = 1 << 20, kMostRanksOfStages = 1 << 25, kMostMicroBatches = 1 << 22;
constexpr std::int64_t kMostShares = 1 << 23, kMostKept = 1 << 22;

// "12 layers", "12 + 12 layers".
std::string layers_in_words(const ModelConfig& model) {
  if (!model.has_decoder()) return counted(model.layers, "layer");
  return fmt::format("{} + {} layers", model.layers, model.decoder_layers);
}

// "512", "512 + 128".
std::string lengths_in_words(const ModelConfig& model) {
  if (!model.has_decoder()) return fmt::to_string(model.sequence_length);
  return fmt::format("{} + {}", model.sequence_length, model.decoder_sequence_length);
}

void require_plannable(const Config& config, const GridShape& shape) {
  const std::vector<std::int64_t> counts = micro_batch_counts(config);
  const std::int64_t layers = config.model.all_layers(), count = *std::max_element(counts.begin(), counts.end());
  verify(layers * count <= kMostPasses, ErrorKind::configuration,
         "{} layers x {} micro-batches on each data rank are {} passes through a layer in one step, more than {}: too "
         "many to plan; raise train.micro_batch_size or the number of data ranks, or lower train.global_batch_size",
         layers, count, layers * count, kMostPasses);
  const std::int64_t chunks = config.parallel.virtual_stages;
  // With an interleaved schedule each rank keeps the results of this number of forwards of a chunk.
  const std::int64_t kept = std::min(shape.pipeline * (chunks + 1), count * chunks);
  verify(chunks == 1 || layers / shape.pipeline * kept <= kMostKept, ErrorKind::configuration,
         "{} layers per stage in parallel.virtual_stages = {} chunks, of which {} forwards are kept at a time, are too "
         "many to plan; lower parallel.virtual_stages",
         layers / shape.pipeline, chunks, kept);
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  verify(all * shape.pipeline * config.parallel.virtual_stages <= kMostMicroBatches, ErrorKind::configuration,
         "train.batch_ramp_up has {} batch sizes with {} micro-batches in all on each data rank, too many to plan; "
         "raise its increment",
         counts.size(), all);
  verify(!config.optimizer.shares().state || layers * shape.data <= kMostShares, ErrorKind::configuration,
         "optimizer.share divides {} layers among {} data ranks: too many to plan", layers, shape.data);
  verify(std::int64_t{shape.ranks()} * shape.pipeline <= kMostRanksOfStages, ErrorKind::configuration,
         "{} ranks in {} pipeline stages are more than can be planned", shape.ranks(), shape.pipeline);
}

}  // namespace

std::vector<MemoryPlan> plan_stages(const Config& config, const GridShape& shape, TransportKind transport) {
  require_plannable(config, shape);
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    plans.push_back(plan_memory(config, shape, {.tensor = 0, .context = 0, .data = 0, .pipeline = stage}, transport));
    static_cast<MemoryUse&>(plans.back()) = plans.back().fullest;
  }
  return plans;
}

std::vector<MemoryPlan> plan_stages(const Config& config, const GridShape& shape) {
  return plan_stages(config, shape, planned_transport(config.run));
}

namespace {
constexpr const char* kByteUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
}  // namespace

namespace {

double bubble_of(const Config& config, std::int64_t count) {
  const auto stages = static_cast<int>(config.parallel.pipeline), micro_batches = static_cast<int>(count);
  if (stages == 1) return 0;
  const auto chunks = static_cast<int>(config.parallel.virtual_stages);
  return simulate(make_schedules(config.parallel.schedule, stages, micro_batches, chunks),
                  {.gradient_buffers = gradient_buffers(stages, micro_batches, chunks)})
      .bubble_fraction;
}

std::string describe_bubble(const Config& config) {
  const auto stages = static_cast<int>(config.parallel.pipeline);
  if (stages == 1) return "no pipeline, no bubble";
  const auto chunks = static_cast<int>(config.parallel.virtual_stages);
  const std::string& name = config.parallel.schedule;
  const auto bubble = [&](std::int64_t count) { return 100 * bubble_of(config, count); };
  const std::vector<std::int64_t> counts = micro_batch_counts(config);
  const auto formula = analytic_bubble(name, stages, static_cast<int>(counts.back()), chunks);
  return fmt::format("{}{}, bubble {:.1f} %{} of the time if all stages are equally fast; {}", name,
                     chunks > 1 ? fmt::format(" over {} chunks a stage", chunks) : "", bubble(counts.back()),
                     counts.size() > 1 ? fmt::format(" (in the first step {:.1f} %)", bubble(counts.front())) : "",
                     formula ? fmt::format("{:.1f} % by the formula", 100 * *formula)
                             : fmt::format("the formula is for {} micro-batches or more", stages));
}

// How the batch grows; nothing for one that does not.
std::string describe_ramp_up(const Config& config, const RunSchedule& schedule) {
  const BatchRampUp& ramp = config.train.batch_ramp_up;
  if (ramp.start == 0) return "";
  return fmt::format("ramp-up   from {} samples by {} to {}, in {} steps of {} samples together\n", ramp.start,
                     ramp.increment, config.train.global_batch_size, schedule.batches().ramp_steps(),
                     schedule.batches().ramp_samples());
}

// How the sequences grow; nothing for those that do not.
std::string describe_curriculum(const Config& config, const RunSchedule& schedule) {
  if (config.train.curriculum.schedule.empty()) return "";
  return fmt::format("sequence  {}: {} tokens in the first step, {} from step {} on\n",
                     config.train.curriculum.schedule, schedule.step_after(0).sequence, config.model.sequence_length,
                     schedule.sequences().growing_steps() + 1);
}

std::string describe_length(const Config& config, const RunSchedule& schedule) {
  const std::int64_t steps = config.train.steps;
  if (steps == 0) return "";  // epochs of data that are not there
  const std::int64_t last = config.train.stop_after;
  return fmt::format(
      "length    {} = {} = {}{}\n", counted(steps, "step"), counted(schedule.samples_after(steps), "sample"),
      counted(schedule.tokens_after(steps), "token"),
      last > 0 && last < steps ? fmt::format("; ends early after step {} (train.stop_after)", last) : "");
}

std::string describe_interval(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.never) {
    return "saves     never: the trained model is NOT kept (checkpoint.every_steps = \"never\")\n";
  }
  std::vector<std::string> when;
  if (checkpoint.every_steps > 0) {
    when.push_back("every " + (checkpoint.every_steps == 1 ? "step" : counted(checkpoint.every_steps, "step")));
  }
  if (const double minutes = checkpoint.minutes_between(); minutes > 0) {
    when.push_back(fmt::format("every {} minutes", minutes));
  }
  if (checkpoint.keep_best) when.emplace_back("after an evaluation with the lowest loss so far");
  when.emplace_back(when.empty() ? "only at the end" : "at the end");
  return fmt::format("saves     {}\n", fmt::join(when, ", "));
}

// How much of its work a run loses that is killed, or whose machine fails.
std::string describe_failure(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  const double minutes = checkpoint.minutes_between();
  std::vector<std::string> most;
  if (checkpoint.every_steps > 0) most.push_back(counted(checkpoint.every_steps, "step"));
  if (minutes > 0) most.push_back(fmt::format("{} minutes", minutes));
  if (most.empty()) {
    return fmt::format("failure   costs all work: nothing is saved {}\n",
                       checkpoint.never ? "but by a stop" : "before the end but by a stop");
  }
  return fmt::format("failure   costs at most {} of work{}, and the step under way{}\n", fmt::join(most, " or "),
                     most.size() > 1 ? " (whichever is less)" : "",
                     checkpoint.async ? "; a checkpoint counts when it is written" : "");
}

std::string describe_recomputation(const Config& config) {
  if (config.recompute.kind() == RecomputeMode::selective) {
    return fmt::format("recompute selective: layers do not keep {}\n",
                       fmt::join(config.recompute.parts_made().names(), ", "));
  }
  if (config.recompute.kind() != RecomputeMode::full) return "";
  const RecomputedLayers layers = recomputed_layers(config.model, config.parallel, config.recompute);
  const double extra = flops_per_token(config.model, layers).hardware / flops_per_token(config.model).model - 1;
  return fmt::format("recompute {} of {} layers keep their input alone: {:.1f} % more operations\n", layers.all(),
                     config.model.all_layers(), 100 * extra);
}

// "4 x 2.13 GiB", or "1 x 2.20 GiB + 9 x 1.90 GiB" where some are larger.
std::string slots_by_size(std::vector<std::size_t> slots) {
  std::sort(slots.rbegin(), slots.rend());
  std::vector<std::string> sizes;
  for (auto first = slots.begin(); first != slots.end();) {
    const auto end = std::find_if(first, slots.end(), [&](std::size_t bytes) { return bytes != *first; });
    sizes.push_back(fmt::format("{} x {}", end - first, format_bytes(static_cast<double>(*first))));
    first = end;
  }
  return fmt::format("{}", fmt::join(sizes, " + "));
}

// Three digits: "2.13 GiB", "138 MiB".
std::string short_bytes(std::size_t bytes) {
  auto value = static_cast<double>(bytes);
  const char* const* unit = std::begin(kByteUnits);
  while (value >= 1000 && unit + 1 != std::end(kByteUnits)) value /= 1024, ++unit;
  const int decimals = unit == std::begin(kByteUnits) || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, *unit);
}

constexpr const char* kMemoryRow = "  {:>5} {:>8} {:>9} {:>9} {:>11} {:>8} {:>8} {:>8} {:>8} {:>8}\n";

std::string memory_row(std::size_t stage, const MemoryPlan& plan) {
  return fmt::format(fmt::runtime(kMemoryRow), stage, short_bytes(plan.weights), short_bytes(plan.gradients),
                     short_bytes(plan.optimizer), short_bytes(plan.activations), short_bytes(plan.communication),
                     short_bytes(plan.scratch), short_bytes(plan.kernels), short_bytes(plan.batch),
                     short_bytes(plan.total()));
}

// The slots that activations are in, where there are several or they differ by stage.
std::string describe_slots(const std::vector<MemoryPlan>& stages) {
  std::vector<std::string> texts;
  bool several = false;
  for (const MemoryPlan& plan : stages) {
    texts.push_back(slots_by_size(plan.passes.slots));
    several = several || plan.slots() > 1;
  }
  if (!several) return "";
  std::vector<std::string> parts;
  for (auto first = texts.begin(); first != texts.end();) {
    const auto end = std::find_if(first, texts.end(), [&](const std::string& text) { return text != *first; });
    const auto from = first - texts.begin(), to = end - texts.begin() - 1;
    parts.push_back(texts.size() == 1 ? *first
                    : from == to      ? fmt::format("stage {}: {}", from, *first)
                                      : fmt::format("stages {} to {}: {}", from, to, *first));
    first = end;
  }
  return fmt::format("  activations by micro-batch in flight: {}\n", fmt::join(parts, "; "));
}

// Options that are on and have nothing to work on: allowed, since one file serves many layouts, but not in silence.
std::string describe_idle_options(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  std::string text;
  const auto note = [&](bool idle, std::string_view option, std::string_view axis) {
    if (idle) text += fmt::format("note      {} does nothing with {} 1\n", option, axis);
  };
  note(parallel.sequence_parallel && parallel.tensor == 1, "parallel.sequence_parallel = true", "tensor");
  note(parallel.overlap_gradients && parallel.data == 1, "parallel.overlap_gradients = true", "data");
  note(config.optimizer.shares().state && parallel.data * parallel.context == 1,
       fmt::format("optimizer.share = \"{}\"", config.optimizer.share), "data");
  return text;
}

// Nothing for a rule without.
std::string describe_momentum(const OptimizerConfig& optimizer) {
  if (!row_named(kUpdateRules, optimizer.name).keys.contains("momentum")) return "";
  return fmt::format("optimizer {}, momentum {}\n", optimizer.name, optimizer.momentum_or_default());
}

}  // namespace

std::string describe_saves(const Config& config) {
  return describe_interval(config) + describe_failure(config);
}

double bubble_fraction(const Config& config) {
  return bubble_of(config, micro_batches_per_step(config));
}

std::string describe_plan(const Config& config, const std::vector<MemoryPlan>& stages) {
  const GridShape shape = grid_shape(config);
  const std::vector<std::int64_t> layers = layers_per_chunk(config.model, config.parallel);
  std::int64_t parameters = 0;
  for (const MemoryPlan& plan : stages) parameters += plan.stage_parameters;
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(
      out, "grid      {} = tensor {}{} x data {} x pipeline {} (tensor fastest){}{}\n", counted(shape.ranks(), "rank"),
      shape.tensor, shape.context > 1 ? fmt::format(" x context {} ({})", shape.context, exchange_of(config).name) : "",
      shape.data, shape.pipeline, config.parallel.sequence_parallel && shape.tensor > 1 ? ", sequence parallel" : "",
      shape.expert > 1 ? fmt::format(", experts shared out over {} data ranks", shape.expert) : "");
  text += describe_idle_options(config);
  fmt::format_to(out, "threads   {} per rank, {} in all\n", config.run.threads, config.run.threads * shape.ranks());
  const ModelConfig& model = config.model;
  fmt::format_to(out,
                 "model     {}{} parameters; {}, hidden {}, {}{}, {}feed-forward {}, sequence {}, "
                 "vocabulary {} (padded to {})\n",
                 model.family != "gpt" ? model.family + ": " : "", parameters, layers_in_words(model),
                 model.hidden_size, counted(model.attention_heads, "head"),
                 model.query_groups != model.attention_heads ? " in " + counted(model.query_groups, "group") : "",
                 model.gated() ? "gated " : "", model.ffn_hidden_size, lengths_in_words(model), model.vocab_size,
                 model.padded_vocab());
  if (model.base_hidden_size > 0) {
    fmt::format_to(out, "scaling   {}: {:.6g} times the width {} that learning rate and initial weights are for\n",
                   config.optimizer.scaling, model.width_factor(), model.base_hidden_size);
  }
  fmt::format_to(
      out, "batch     {} = {} x {} x {}; {} tokens per step\n", counted(config.train.global_batch_size, "sample"),
      counted(micro_batches_per_step(config), "micro-batch"), counted(config.train.micro_batch_size, "sample"),
      counted(shape.data, "data rank"), config.train.global_batch_size * config.model.sequence_length);
  const RunSchedule schedule(config);
  text += describe_ramp_up(config, schedule);
  text += describe_curriculum(config, schedule);
  text += describe_length(config, schedule);
  text += describe_saves(config);
  fmt::format_to(out, "schedule  {}\n", describe_bubble(config));
  fmt::format_to(out, "layers    {} by {}\n", fmt::join(layers, " "),
                 config.parallel.virtual_stages == 1
                     ? "stage"
                     : fmt::format("chunk in the order of the model: stage 0's first, stage 1's first, ..."));
  std::vector<std::int64_t> held;
  for (const MemoryPlan& plan : stages) held.push_back(plan.parameters);
  fmt::format_to(out, "per rank  {} parameters{}\n", fmt::join(held, " "), held.size() > 1 ? ", by stage" : "");
  text += config.optimizer_groups.empty() ? describe_momentum(config.optimizer) : wrapped(describe_groups(config));
  text += describe_recomputation(config);
  text += describe_share(config);
  text += describe_offload(config, stages);
  fmt::format_to(out, "memory per rank (the program's own buffers; resident: plus {} of program and libraries)\n",
                 program_bytes());
  fmt::format_to(out, fmt::runtime(kMemoryRow), "stage", "weights", "gradients", "optimizer", "activations", "comm.",
                 "scratch", "kernels", "batch", "total");
  for (std::size_t i = 0; i < stages.size(); ++i) text += memory_row(i, stages[i]);
  text += describe_slots(stages);
  std::size_t host = 0;
  for (const MemoryPlan& plan : stages) host = std::max(host, plan.host);
  if (host > 0) {
    fmt::format_to(out, "  and at most {} of the host's memory: for staged communication{}{}{}\n",
                   format_bytes(static_cast<double>(host)),
                   saves_in_background(config) ? ", checkpoints that are written" : "",
                   config.run.trace_steps.empty() ? "" : ", events of traced steps",
                   config.optimizer.offload == "host" ? ", offloaded optimizer state" : "");
  }
  std::size_t snapshot = 0;
  for (const MemoryPlan& plan : stages) snapshot = std::max(snapshot, plan.snapshot);
  if (snapshot > 0) {
    fmt::format_to(out, "  in the total, at most {} from which checkpoints are written (checkpoint.async)\n",
                   format_bytes(static_cast<double>(snapshot)));
  }
  if (stages[0].trace > 0) {
    fmt::format_to(out, "  in the total, {} for the events of traced steps (run.trace_events)\n",
                   format_bytes(static_cast<double>(stages[0].trace)));
  }
  const bool grows = config.train.batch_ramp_up.start > 0 || !config.train.curriculum.schedule.empty();
  double flops = 0, passes = 0, sums = 0;
  for (const MemoryPlan& plan : stages) {
    flops += (plan.matmul_flops + plan.attention_flops) / static_cast<double>(stages.size());
    passes = std::max(passes, plan.forward_and_backward_bytes);
    sums = std::max(sums, plan.gradient_bytes);
  }
  fmt::format_to(
      out,
      "step      {:.4g} TFLOP per rank in matmuls and attention{}; sends at most {} in passes and {} between copies",
      1e-12 * flops, grows ? ", at its largest" : "", format_bytes(passes), format_bytes(sums));
  return wrapped(text);
}

}  // namespace megatron
