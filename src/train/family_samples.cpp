#include "train/family_samples.h"

#include <algorithm>

#include "base/error.h"
#include "data/next_token_samples.h"
#include "train/losses.h"

namespace megatron {

namespace {

std::unique_ptr<Samples> next_tokens(const Config& config, const SampleInputs& inputs) {
  const auto end = static_cast<std::int32_t>(inputs.vocabulary.eod_id);
  return std::make_unique<NextTokenSamples>(
      inputs.source, inputs.order, end,
      inputs.training ? training_weights(config, end) : evaluation_weights(config, end));
}

constexpr FamilySamples kFamilySamples[] = {{"gpt", next_tokens}};

}  // namespace

const FamilySamples& samples_of_family(const ModelConfig& model) {
  const auto* const found = std::find_if(std::begin(kFamilySamples), std::end(kFamilySamples),
                                         [&](const FamilySamples& row) { return row.family == model.family; });
  verify(
      found != std::end(kFamilySamples), ErrorKind::configuration,
      "model.family = \"{}\" is not supported for training yet, since nothing makes its samples; only --dry-run plans "
      "it, and model.family = \"gpt\" trains",
      model.family);
  return *found;
}

}  // namespace megatron
