// The second step of configuration: with the number of ranks, and what is known of the data, every derived value is
// computed once and every remaining rule is checked. Pure arithmetic; starts nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

/// Facts about the training data for the configuration.
struct DataFacts {
  std::int64_t vocab_size = 0;  ///< that of the data's tokenizer
  /// Samples of sequence_length tokens in one pass over the training split, whatever their order: what an epoch is in
  /// train.epochs, evaluate_every = "epoch" and the metrics.
  std::int64_t train_samples = 0;
  std::size_t host_bytes = 0;  ///< examples that each rank holds in the host's memory
};

/// The passes over the training data that `samples` samples are.
double epochs_of(std::int64_t samples, const DataFacts& data);

/// Samples of the whole run as its length is given: train.samples, or what steps, tokens or epochs come to. A rest that
/// is smaller than a batch counts. After `resolve` the run is in steps and the rest is gone.
std::int64_t samples_of_run(const Config& config, const DataFacts& data);
/// The same with checkpoint.consumed_samples in front of them; the largest number if there are more.
std::int64_t samples_with_consumed(const Config& config, const DataFacts& data);

/// How many of the first `steps` steps an evaluation follows: every train.evaluate_every-th, or with "epoch" those that
/// complete a pass over the training data. So one follows step n if this is more for n than for n - 1.
std::int64_t evaluations_within(const Config& config, const DataFacts& data, std::int64_t steps);

/// Fills in what follows from other values: data size, query groups, feed-forward size, positions, vocabulary, steps,
/// warm-up and decay in samples or tokens, the samples of Megatron's order. Resolving a resolved configuration changes
/// nothing.
///
/// `data` may be absent for planning: then model.vocab_size must be given, and with train.epochs train.steps (and the
/// warm-up and decay that follow from it) stay 0: unknown.
///
/// A run that is too short for its warm-up or wsd decay gets shorter ones, with a line in `warnings` if that is given;
/// only a decay length that was given must be long enough.
///
/// Throws one Error(configuration) with one line for every violated rule; `config` is then unchanged.
void resolve(Config& config, int ranks, const DataFacts* data, std::vector<std::string>* warnings = nullptr);

}  // namespace megatron
