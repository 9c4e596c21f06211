#include "inference/decoding/logit_comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "inference/decoding/inference_model.h"

namespace megatron {

namespace {

std::vector<std::int32_t> fixed_tokens(std::int64_t vocabulary, std::int64_t count, std::int64_t step) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * step + 13) % vocabulary));
  return tokens;
}

std::vector<float> logits_of(const Config& config, Communicator& world, const LogitComparison& of,
                             const FillValues& fill) {
  RunConfig run;
  run.device = "cpu";
  run.communication = "mpi";
  InferenceModel model(config, world, start_compute(run, DType::f32, world, "", 0));
  fill(model.values());
  std::vector<float> logits;
  model.logits(of.tokens, 0, logits, of.encoder_tokens);
  return logits;
}

}  // namespace

LogitComparison compare_logits(const Config& config, Communicator& world, std::int64_t known_tokens,
                               const FillValues& source, const FillValues& target) {
  LogitComparison compared;
  const ModelConfig& model = config.model;
  const std::int64_t length = model.has_decoder() ? model.decoder_sequence_length : model.sequence_length;
  compared.tokens = fixed_tokens(known_tokens, std::min<std::int64_t>(32, length), 7919);
  if (model.has_decoder()) {
    compared.encoder_tokens = fixed_tokens(known_tokens, std::min<std::int64_t>(48, model.sequence_length), 104729);
  }
  const std::vector<float> expected = logits_of(config, world, compared, source);
  compared.logits = logits_of(config, world, compared, target);
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
