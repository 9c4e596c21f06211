#include "models/families/moe_terms.h"

#include "distributed/parallel/parameter.h"

namespace megatron {

MoeTerms moe_terms(const ModelConfig& model, int own_terms) {
  MoeTerms terms{kNone, kNone};
  int next = own_terms;
  if (model.expert_layers() == 0) return terms;
  if (model.moe.balance_coefficient > 0) terms.balance = next++;
  if (model.moe.z_coefficient > 0) terms.z = next++;
  return terms;
}

std::vector<std::string> expert_layer_names(const ModelConfig& model) {
  std::vector<std::string> names;
  const auto add = [&](const char* stack, std::int64_t layers) {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      if (model.moe.in_layer(layer)) names.push_back(stack + std::to_string(layer));
    }
  };
  add(model.has_decoder() ? "encoder.layers." : "layers.", model.layers);
  if (model.has_decoder()) add("decoder.layers.", model.all_layers() - model.layers);
  return names;
}

LossTerms with_moe_terms(LossTerms own, const ModelConfig& model) {
  const MoeTerms terms = moe_terms(model, static_cast<int>(own.size()));
  // A multiple choice routes each of its columns by itself.
  const auto per_sample = static_cast<double>(model.expert_layers() * model.task_choices);
  if (terms.balance != kNone) own.push_back({"balance", model.moe.balance_coefficient, per_sample});
  if (terms.z != kNone) own.push_back({"router_z", model.moe.z_coefficient, per_sample});
  return own;
}

}  // namespace megatron
