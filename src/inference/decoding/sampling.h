// From a row of logits to the next token. Pure functions on the host: they know neither models nor ranks. Randomness is
// a function of (seed, prompt, sample, position), so that batches, layouts and the order of prompts change no draw.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Message where the model's logits are not finite.
inline constexpr std::string_view kNotFinite =
    "not all of the model's logits are finite numbers: its training has diverged; generate from an older checkpoint";

struct SamplingOptions {
  std::int64_t max_new_tokens = 100;
  double temperature = 1;  ///< > 0
  std::int64_t top_k = 0;  ///< 0: all; 1: greedy
  double top_p = 0;        ///< 0: all; else the smallest set of tokens with at least this probability, of the top_k's
  double top_p_decay = 1;  ///< top_p is multiplied by it after every generated token,
  double top_p_bound = 0;  ///< and stays at least this
  double repetition_penalty = 1;  ///< 1: none; see penalize_repetition()
  std::uint64_t seed = 1234;
};

/// The same options with top_p as it is for generated token number `position`, from 0.
SamplingOptions options_at(SamplingOptions options, std::int64_t position);

/// The random number in [0, 1) of generated token number `position` of one sample of one prompt.
double sampling_uniform(std::uint64_t seed, std::int64_t prompt, std::int64_t sample, std::int64_t position);

/// Divides the logits above 0 of tokens in `context` by `penalty`, and multiplies the others of them by it, once each
/// (Keskar et al. 2019).
void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> context, double penalty);

/// Whether no logit is infinite or no number.
bool all_finite(std::span<const float> logits);

/// The next token from one row of logits: greedy for top_k 1, else softmax at the temperature, restricted to the top_k
/// likeliest (ties kept), then among these to the nucleus top_p (Holtzman et al. 2020; the token that crosses p is
/// kept), and drawn with `uniform` in [0, 1). Error(numerics) if a logit is not finite.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

struct TokenLogProbability {
  std::int32_t token = 0;
  double value = 0;
};
/// ln of the sum of exponentials of a row: a token's log-probability is its logit less this.
double log_sum_exp(std::span<const float> logits);
/// The `count` likeliest tokens, likeliest first, with the log-probabilities of the model itself: before temperature,
/// penalty and restriction.
std::vector<TokenLogProbability> likeliest_tokens(std::span<const float> logits, std::int64_t count);

/// Finds the first of several stop texts in text that arrives in pieces. What may be the beginning of one is held back.
class StopTexts {
 public:
  /// None of `texts` may be empty.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  /// Takes the next piece; returns the text that is certain to be before any stop text. Nothing once stopped.
  std::string add(std::string_view piece);
  bool stopped() const { return stopped_; }
  /// Returns the text that was held back; called when no more text comes.
  std::string rest();

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace megatron
