#include "inference/logit_comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "inference/inference_model.h"

namespace megatron {

namespace {

std::vector<std::int32_t> fixed_tokens(const ModelConfig& model) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(32, model.sequence_length); ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * 7919 + 13) % model.vocab_size));
  }
  return tokens;
}

std::vector<float> logits_of(const Config& config, Communicator& world, const std::vector<std::int32_t>& tokens,
                             const FillValues& fill) {
  RunConfig run;
  run.device = "cpu";
  run.communication = "mpi";
  InferenceModel model(config, world, start_compute(run, world, "", 0));
  fill(model.values());
  std::vector<float> logits;
  model.logits(tokens, 0, logits);
  return logits;
}

}  // namespace

LogitComparison compare_logits(const Config& config, Communicator& world, const FillValues& source,
                               const FillValues& target) {
  LogitComparison compared;
  compared.tokens = fixed_tokens(config.model);
  const std::vector<float> expected = logits_of(config, world, compared.tokens, source);
  compared.logits = logits_of(config, world, compared.tokens, target);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float ours = expected[i], theirs = compared.logits[i];
    if (std::isnan(ours)) {
      ++compared.not_numbers;
    } else {
      compared.largest_logit = std::max(compared.largest_logit, std::abs(double{ours}));
    }
    const bool same = std::bit_cast<std::uint32_t>(ours) == std::bit_cast<std::uint32_t>(theirs);
    if (same || (std::isnan(ours) && std::isnan(theirs))) continue;
    ++compared.differing;
    const double difference = std::abs(double{ours} - double{theirs});
    if (std::isnan(difference) || difference > compared.largest_difference) compared.largest_difference = difference;
  }
  return compared;
}

}  // namespace megatron
