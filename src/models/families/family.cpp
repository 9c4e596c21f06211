#include "models/families/family.h"

#include <algorithm>
#include <array>

#include "config/rules/exchange_rules.h"
#include "models/families/bert.h"
#include "models/families/gpt.h"
#include "models/families/moe_terms.h"
#include "models/families/signature.h"
#include "models/families/t5.h"
#include "models/families/word_table.h"

namespace megatron {

namespace {

template <class FamilyStage>
Stages stages_of(const Config& config, const ProcessGrid& grid, const TensorRegion& region, ParameterStore& store) {
  Stages stages;
  for (int chunk = 0; chunk < config.parallel.virtual_stages; ++chunk) {
    stages.push_back(
        std::make_unique<FamilyStage>(config.model, config.parallel, grid, region, store, config.recompute, chunk));
  }
  return stages;
}

// The weights of the targets are data (training/datasets/losses.h): one cross entropy, under the name of loss.name.
LossTerms decoder_loss_terms(const Config& config) {
  return with_moe_terms({{.name = config.loss.name}}, config.model);
}

constexpr std::array kFamilies = {
    ModelFamily{.name = "gpt",
                .decodes = true,
                .make_stages = stages_of<GptStage>,
                .ties = word_table_ties,
                .batch_layout = gpt_batch_layout,
                .loss_terms = decoder_loss_terms,
                .flops = decoder_flops_per_token,
                .signature = decoder_signature,
                .resume_signature = decoder_resume_signature,
                .weights_signature = decoder_weights_signature},
    ModelFamily{.name = "bert",
                .make_stages = stages_of<BertStage>,
                .ties = bert_ties,
                .batch_layout = bert_batch_layout,
                .loss_terms = bert_loss_terms,
                .flops = encoder_flops_per_token,
                .signature = decoder_signature,
                .resume_signature = decoder_resume_signature,
                .weights_signature = decoder_weights_signature},
    ModelFamily{.name = "t5",
                .decodes = true,
                .make_stages = make_t5_stages,
                .ties = t5_ties,
                .batch_layout = t5_batch_layout,
                .loss_terms = decoder_loss_terms,
                .flops = encoder_decoder_flops_per_token,
                .signature = decoder_signature,
                .resume_signature = decoder_resume_signature,
                .weights_signature = decoder_weights_signature},
};

}  // namespace

const ModelFamily& family_of(const ModelConfig& model) {
  const auto* const found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                         [&](const ModelFamily& family) { return family.name == model.family; });
  internal_check(found != kFamilies.end(), "model.family names no family of the table");
  return *found;
}

BatchLayout batch_layout_of_rank(const ModelFamily& family, const Config& config, int context_rank) {
  const BatchLayout layout = family.batch_layout(config).divided(
      {static_cast<int>(config.parallel.context), context_rank}, exchange_of(config).whole_rows);
  const MoeConfig& moe = config.model.moe;
  return moe.experts > 0 && moe.drops() == ExpertDrop::random ? layout.with_whole_positions() : layout;
}

FlopsPerToken flops_per_token(const ModelConfig& model, RecomputedLayers recomputed, std::int64_t sequence) {
  return family_of(model).flops(model, recomputed, sequence);
}

}  // namespace megatron
