#include "config/rules/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "config/rules/rules.h"
#include "config/schema/parameter_groups.h"
#include "config/schema/run_schedule.h"
#include "config/schema/task.h"

namespace megatron {
namespace {

using Messages = std::vector<std::string>;

void resolve_vocabulary(Config& config, const DataFacts* data, Messages& problems) {
  std::int64_t& vocab = config.model.vocab_size;
  if (data == nullptr) {
    if (vocab == 0) problems.push_back("model.vocab_size is not set, and without data there is none to take; give it");
    return;
  }
  if (vocab == 0) vocab = data->vocab_size;
  if (vocab < data->vocab_size) {
    problems.push_back(
        fmt::format("model.vocab_size = {} is smaller than the data's {}; leave it out, or give at least {}", vocab,
                    data->vocab_size, data->vocab_size));
  }
}

void resolve_steps(Config& config, const RunSchedule& schedule, const DataFacts* data, Messages& problems) {
  TrainConfig& train = config.train;
  if (train.steps == 0) {
    if (train.epochs > 0 && data == nullptr) return;
    const std::int64_t samples = samples_of_run(config, data != nullptr ? *data : DataFacts{});
    train.steps = schedule.steps_for_samples(samples);
    if (train.steps == 0) {
      problems.push_back(fmt::format(
          "the run has {} samples ({}), fewer than one batch of {}", samples,
          train.samples > 0 ? fmt::format("train.samples = {}", train.samples)
          : train.tokens > 0
              ? fmt::format("train.tokens = {} / sequence_length {}", train.tokens, schedule.step_after(0).sequence)
              : fmt::format("train.epochs = {} × {} samples", train.epochs, data->train_samples),
          schedule.step_after(0).samples));
    }
    train.samples = train.tokens = 0;
    train.epochs = 0;
  }
  if (schedule.samples_after(train.steps) == std::numeric_limits<std::int64_t>::max()) {
    problems.push_back(
        fmt::format("train.steps = {} of {} samples is more than 2^63 samples", train.steps, train.global_batch_size));
  }
}

/// The learning rate's lengths in what it counts: samples, or tokens.
struct RateUnit {
  const RunSchedule& schedule;
  bool tokens;

  const char* name() const { return tokens ? "tokens" : "samples"; }
  std::int64_t of_steps(std::int64_t n) const { return tokens ? schedule.tokens_after(n) : schedule.samples_after(n); }
  std::int64_t of_samples(std::int64_t n) const { return tokens ? schedule.tokens_of_samples(n) : n; }
  std::int64_t of_tokens(std::int64_t n) const { return tokens ? n : n / schedule.sequences().length_of(1); }
  std::int64_t steps_of(std::int64_t n) const {
    return tokens ? schedule.steps_for_tokens(n) : schedule.steps_for_samples(n);
  }
  /// The length from the one argument that is given; 0 if none is.
  std::int64_t of(std::int64_t in_steps, std::int64_t in_samples, std::int64_t in_tokens) const {
    return in_steps > 0 ? of_steps(in_steps) : in_samples > 0 ? of_samples(in_samples) : of_tokens(in_tokens);
  }
};

/// Samples are what it counts unless they grow and something is said in tokens.
bool rate_counts_tokens(const Config& config) {
  const LearningRateConfig& rate = config.learning_rate;
  return !config.train.curriculum.schedule.empty() &&
         (config.train.tokens > 0 || rate.warmup_tokens > 0 || rate.decay_tokens > 0 || rate.wsd_decay_tokens > 0);
}

/// The length of the decay at the end. A shortened run, whose decay length follows it (`whole_run`), shortens it too.
std::int64_t wsd_length(const LearningRateConfig& rate, const RateUnit& unit, std::int64_t warmup, std::int64_t decay,
                        bool whole_run, Messages& problems, Messages& warnings) {
  if (rate.decay != "wsd") return 0;
  const std::int64_t steps = unit.steps_of(decay), samples = unit.schedule.samples_after(steps);
  std::int64_t length = unit.of(0, 0, rate.wsd_decay_tokens);
  if (rate.wsd_decay_steps > 0) {  // the last steps of the run
    length = unit.of_steps(steps) - unit.of_steps(std::max<std::int64_t>(0, steps - rate.wsd_decay_steps));
  } else if (rate.wsd_decay_samples > 0) {
    length = !unit.tokens ? rate.wsd_decay_samples
                          : unit.of_samples(samples) -
                                unit.of_samples(std::max<std::int64_t>(0, samples - rate.wsd_decay_samples));
  }
  if (rate.wsd_decay_steps <= steps && length <= decay - warmup) return length;
  const std::string given = rate.wsd_decay_steps > 0 ? fmt::format("{} steps", rate.wsd_decay_steps)
                                                     : fmt::format("{} {}", length, unit.name());
  if (whole_run) {
    warnings.push_back(
        fmt::format("learning_rate: the wsd decay of {} does not fit into the run's {} {} = {} steps after the warm-up "
                    "of {}; it is "
                    "shortened to the {} that are left. train.stop_after = {} tries a few steps of the whole run's "
                    "schedule instead",
                    given, decay, unit.name(), steps, warmup, decay - warmup, steps));
    return decay - warmup;
  }
  problems.push_back(fmt::format(
      "learning_rate: the warm-up of {} {} and the wsd decay of {} do not fit into the decay length of {} {} = {} "
      "steps; shorten one, or lengthen learning_rate.decay_{}",
      warmup, unit.name(), given, decay, unit.name(), steps, unit.name()));
  return length;
}

/// The warm-up of a run that is too short for it becomes the decay length divided by this.
constexpr std::int64_t kShareOfWarmup = 10;

/// Needs train.steps.
void resolve_learning_rate(Config& config, const RateUnit& unit, Messages& problems, Messages& warnings) {
  LearningRateConfig& rate = config.learning_rate;
  std::int64_t decay = unit.of(rate.decay_steps, rate.decay_samples, rate.decay_tokens);
  const std::string said = rate.decay_steps > 0 ? fmt::format(" ({} steps)", rate.decay_steps) : "";
  const bool whole_run = decay == 0;
  if (whole_run) decay = unit.of_steps(config.train.steps);
  std::int64_t warmup = unit.of(rate.warmup_steps, rate.warmup_samples, rate.warmup_tokens);
  if (rate.warmup_fraction > 0) {
    warmup = static_cast<std::int64_t>(rate.warmup_fraction * static_cast<double>(decay));
  }
  const bool decays = rate.decay == "cosine" || rate.decay == "linear" || rate.decay == "wsd";
  if (decays && warmup >= decay) {
    const std::string given =
        fmt::format("learning_rate: the warm-up of {}{} {} is not shorter than",
                    rate.warmup_steps > 0 ? fmt::format("{} steps = ", rate.warmup_steps) : "", warmup, unit.name());
    if (whole_run) {
      warmup = decay / kShareOfWarmup;
      warnings.push_back(
          fmt::format("{} the run's {} {}; it is shortened to {}, 1/{} of them. train.stop_after = {} tries a few "
                      "steps of the whole "
                      "run's schedule instead",
                      given, decay, unit.name(), warmup, kShareOfWarmup, config.train.steps));
    } else {
      problems.push_back(fmt::format("{} the {} decay's {} {}{}; lower the warm-up, or say it as warmup_fraction",
                                     given, rate.decay, decay, unit.name(), said));
    }
  }
  const std::int64_t at_the_end = wsd_length(rate, unit, warmup, decay, whole_run, problems, warnings);
  rate.warmup_steps = rate.decay_steps = rate.wsd_decay_steps = 0;
  rate.warmup_fraction = 0;
  rate.warmup_samples = unit.tokens ? 0 : warmup;
  rate.decay_samples = unit.tokens ? 0 : decay;
  rate.wsd_decay_samples = unit.tokens ? 0 : at_the_end;
  rate.warmup_tokens = unit.tokens ? warmup : 0;
  rate.decay_tokens = unit.tokens ? decay : 0;
  rate.wsd_decay_tokens = unit.tokens ? at_the_end : 0;
}

void resolve_lengths(Config& config, const DataFacts* data, Messages& problems, Messages& warnings) {
  const RunSchedule schedule(config);
  if (config.data.megatrons_order() && config.data.order_samples == 0) {
    config.data.order_samples = samples_with_consumed(config, data != nullptr ? *data : DataFacts{});
  }
  const RateUnit unit{schedule, rate_counts_tokens(config)};
  resolve_steps(config, schedule, data, problems);
  if (config.train.steps > 0 && problems.empty()) resolve_learning_rate(config, unit, problems, warnings);
}

bool concerns_lengths(const Violation& violation) {
  return std::any_of(violation.keys.begin(), violation.keys.end(), [](const std::string& key) {
    return key.starts_with("train.") || key.starts_with("learning_rate.") || key == "model.sequence_length";
  });
}

}  // namespace

std::int64_t samples_of_run(const Config& config, const DataFacts& data) {
  const TrainConfig& train = config.train;
  if (train.samples > 0) return train.samples;
  if (train.tokens > 0 && train.curriculum.schedule.empty()) return train.tokens / config.model.sequence_length;
  if (train.tokens > 0) {
    const RunSchedule schedule(config);
    return schedule.samples_after(schedule.steps_for_tokens(train.tokens));
  }
  if (train.steps > 0) return RunSchedule(config).samples_after(train.steps);
  // The factor keeps products like 0.29 · 100 from falling below the whole number they mean.
  return static_cast<std::int64_t>(std::floor(train.epochs * static_cast<double>(data.train_samples) * (1 + 1e-12)));
}

std::int64_t samples_with_consumed(const Config& config, const DataFacts& data) {
  const std::int64_t run = samples_of_run(config, data), consumed = config.checkpoint.consumed_samples;
  return run > std::numeric_limits<std::int64_t>::max() - consumed ? std::numeric_limits<std::int64_t>::max()
                                                                   : consumed + run;
}

double epochs_of(std::int64_t samples, const DataFacts& data) {
  return static_cast<double>(samples) / static_cast<double>(data.train_samples);
}

std::int64_t evaluations_within(const Config& config, const DataFacts& data, std::int64_t steps) {
  const TrainConfig& train = config.train;
  if (train.evaluate_every_epoch) {
    return BatchSchedule(train.global_batch_size, train.batch_ramp_up).completions(steps, data.train_samples);
  }
  return train.evaluate_every > 0 ? steps / train.evaluate_every : 0;
}

void resolve(Config& config, int ranks, const DataFacts* data, std::vector<std::string>* warnings) {
  verify(ranks >= 1, ErrorKind::configuration, "the number of ranks is {}; it must be at least 1", ranks);
  const ParallelConfig& given = config.parallel;
  internal_check(given.tensor > 0 && given.context > 0 && given.pipeline > 0 && given.virtual_stages > 0 &&
                     given.expert > 0 && config.model.vocab_multiple > 0 && config.train.micro_batch_size > 0,
                 "resolve: sizes with a default are positive", given.tensor, given.context, given.pipeline,
                 given.virtual_stages, given.expert, config.model.vocab_multiple, config.train.micro_batch_size);
  Config result = config;
  Messages problems;
  resolve_vocabulary(result, data, problems);
  std::vector<Violation> violations = check_alone(result);
  for (Violation& violation : check_with_ranks(result, ranks)) violations.push_back(std::move(violation));
  for (const Violation& violation : violations) problems.push_back(violation.whole());

  ModelConfig& model = result.model;
  model.query_groups = query_groups_of(model);
  model.ffn_hidden_size = ffn_hidden_size_of(model);
  if (MoeConfig& moe = model.moe; moe.experts > 0) {
    if (moe.ffn_hidden_size == 0) moe.ffn_hidden_size = model.ffn_hidden_size;
    if (moe.evaluation_capacity_factor == 0) moe.evaluation_capacity_factor = moe.capacity_factor;
  }
  model.decoder_layers = decoder_layers_of(model);
  model.decoder_sequence_length = decoder_sequence_length_of(model);
  if (model.max_position_embeddings == 0) {
    model.max_position_embeddings = std::max(model.sequence_length, model.decoder_sequence_length);
  }
  derive_head(result);
  derive_momentum(result);
  const ParallelConfig& parallel = result.parallel;
  result.parallel.data = ranks / (parallel.tensor * parallel.context * parallel.pipeline);
  if (std::none_of(violations.begin(), violations.end(), concerns_lengths)) {
    Messages lengths, shortened;
    resolve_lengths(result, data, lengths, shortened);
    if (warnings != nullptr) warnings->insert(warnings->end(), shortened.begin(), shortened.end());
    problems.insert(problems.end(), lengths.begin(), lengths.end());
    if (const auto& traced = result.run.trace_steps;
        config.train.steps == 0 && traced.size() == 2 && result.train.steps > 0 && traced[1] > result.train.steps) {
      problems.push_back(fmt::format("run.trace_steps = [{}, {}]: the run ends with step {}", traced[0], traced[1],
                                     result.train.steps));
    }
  }
  if (!problems.empty()) fail(ErrorKind::configuration, "{}", fmt::join(problems, "\n"));
  config = result;
}

}  // namespace megatron
