#include "config/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/rules.h"
#include "config/run_schedule.h"

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
              ? fmt::format("train.tokens = {} / sequence_length {}", train.tokens, config.model.sequence_length)
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

/// The decay at the end in samples. Needs warm-up and decay in samples.
void resolve_wsd(LearningRateConfig& rate, const RunSchedule& schedule, Messages& problems) {
  if (rate.decay != "wsd") return;
  const std::int64_t steps = schedule.steps_for_samples(rate.decay_samples);
  if (rate.wsd_decay_steps > 0) {  // the last so many
    const std::int64_t before = std::max<std::int64_t>(0, steps - rate.wsd_decay_steps);
    rate.wsd_decay_samples = schedule.samples_after(steps) - schedule.samples_after(before);
  }
  if (rate.wsd_decay_steps > steps || rate.wsd_decay_samples > rate.decay_samples - rate.warmup_samples) {
    problems.push_back(fmt::format(
        "learning_rate: the warm-up of {} samples and the wsd decay of {} do not fit into the decay length of {} "
        "samples = {} steps; shorten one, or lengthen learning_rate.decay_samples",
        rate.warmup_samples,
        rate.wsd_decay_steps > 0 ? fmt::format("{} steps", rate.wsd_decay_steps)
                                 : fmt::format("{} samples", rate.wsd_decay_samples),
        rate.decay_samples, steps));
  }
}

/// Warm-up and decay in samples. Needs train.steps.
void resolve_learning_rate(Config& config, const RunSchedule& schedule, Messages& problems) {
  LearningRateConfig& rate = config.learning_rate;
  if (rate.decay_steps > 0) rate.decay_samples = schedule.samples_after(rate.decay_steps);
  if (rate.decay_samples == 0) rate.decay_samples = schedule.samples_after(config.train.steps);
  if (rate.warmup_steps > 0) rate.warmup_samples = schedule.samples_after(rate.warmup_steps);
  if (rate.warmup_fraction > 0) {
    rate.warmup_samples = static_cast<std::int64_t>(rate.warmup_fraction * static_cast<double>(rate.decay_samples));
  }
  const bool decays = rate.decay == "cosine" || rate.decay == "linear" || rate.decay == "wsd";
  if (decays && rate.warmup_samples >= rate.decay_samples) {
    problems.push_back(
        fmt::format("learning_rate: the warm-up of {}{} samples is not shorter than the {} decay's {} samples ({}); "
                    "lower the warm-up, "
                    "or say it as warmup_fraction",
                    rate.warmup_steps > 0 ? fmt::format("{} steps = ", rate.warmup_steps) : "", rate.warmup_samples,
                    rate.decay, rate.decay_samples,
                    rate.decay_steps > 0 ? fmt::format("{} steps", rate.decay_steps) : "the whole run by default"));
  }
  resolve_wsd(rate, schedule, problems);
  rate.warmup_steps = rate.decay_steps = rate.wsd_decay_steps = 0;
  rate.warmup_fraction = 0;
}

void resolve_lengths(Config& config, const DataFacts* data, Messages& problems) {
  const RunSchedule schedule(config);
  if (config.data.order == "megatron" && config.data.order_samples == 0) {
    config.data.order_samples = samples_of_run(config, data != nullptr ? *data : DataFacts{});
  }
  resolve_steps(config, schedule, data, problems);
  if (config.train.steps > 0 && problems.empty()) resolve_learning_rate(config, schedule, problems);
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
  if (train.tokens > 0) return train.tokens / config.model.sequence_length;
  if (train.steps > 0) return RunSchedule(config).samples_after(train.steps);
  // The factor keeps products like 0.29 · 100 from falling below the whole number they mean.
  return static_cast<std::int64_t>(std::floor(train.epochs * static_cast<double>(data.train_samples) * (1 + 1e-12)));
}

std::int64_t evaluations_within(const Config& config, const DataFacts& data, std::int64_t steps) {
  const TrainConfig& train = config.train;
  if (train.evaluate_every_epoch) {
    return BatchSchedule(train.global_batch_size, train.batch_ramp_up).completions(steps, data.train_samples);
  }
  return train.evaluate_every > 0 ? steps / train.evaluate_every : 0;
}

void resolve(Config& config, int ranks, const DataFacts* data) {
  verify(ranks >= 1, ErrorKind::configuration, "the number of ranks is {}; it must be at least 1", ranks);
  const ParallelConfig& given = config.parallel;
  internal_check(given.tensor > 0 && given.context > 0 && given.pipeline > 0 && given.virtual_stages > 0 &&
                     given.expert > 0 && config.model.vocab_multiple > 0 && config.train.micro_batch_size > 0,
                 "resolve: sizes with a default are positive");
  Config result = config;
  Messages problems;
  resolve_vocabulary(result, data, problems);
  std::vector<Violation> violations = check_alone(result);
  for (Violation& violation : check_with_ranks(result, ranks)) violations.push_back(std::move(violation));
  for (const Violation& violation : violations) problems.push_back(violation.message);

  ModelConfig& model = result.model;
  model.query_groups = query_groups_of(model);
  model.ffn_hidden_size = ffn_hidden_size_of(model);
  if (model.max_position_embeddings == 0) model.max_position_embeddings = model.sequence_length;
  const ParallelConfig& parallel = result.parallel;
  result.parallel.data = ranks / (parallel.tensor * parallel.context * parallel.pipeline);
  if (std::none_of(violations.begin(), violations.end(), concerns_lengths)) {
    Messages lengths;
    resolve_lengths(result, data, lengths);
    problems.insert(problems.end(), lengths.begin(), lengths.end());
  }
  if (!problems.empty()) fail(ErrorKind::configuration, "{}", fmt::join(problems, "\n"));
  config = result;
}

}  // namespace megatron
