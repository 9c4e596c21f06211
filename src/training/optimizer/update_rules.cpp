#include "training/optimizer/update_rules.h"

#include <algorithm>

#include "training/optimizer/muon.h"
#include "training/optimizer/newton_schulz.h"

namespace megatron {

namespace {

void adamw(Ops& ops, const OptimizerConfig& config, const UpdateArgs& args) {
  const bool for_others = row_named(kUpdateRules, config.name).needs_matrices;  // for what such a rule leaves
  const double rate_factor = for_others ? config.adamw_learning_rate_factor : 1;
  ops.adamw({.value = args.value,
             .gradient = args.gradient,
             .m = args.states[0],
             .v = args.states[1],
             .draws = args.draws,
             .clip_factor = args.clip_factor,
             .skip = args.skip,
             .learning_rate = args.learning_rate * static_cast<float>(rate_factor),
             .beta1 = static_cast<float>(config.beta1),
             .beta2 = static_cast<float>(config.beta2),
             .epsilon = static_cast<float>(config.epsilon),
             .weight_decay = args.weight_decay,
             .step = args.step});
}

void sgd(Ops& ops, const OptimizerConfig& config, const UpdateArgs& args) {
  ops.sgd({.value = args.value,
           .gradient = args.gradient,
           .m = args.states[0],
           .draws = args.draws,
           .clip_factor = args.clip_factor,
           .skip = args.skip,
           .learning_rate = args.learning_rate,
           .momentum = static_cast<float>(config.momentum_or_default()),
           .weight_decay = args.weight_decay});
}

void lion(Ops& ops, const OptimizerConfig& config, const UpdateArgs& args) {
  ops.lion({.value = args.value,
            .gradient = args.gradient,
            .m = args.states[0],
            .draws = args.draws,
            .clip_factor = args.clip_factor,
            .skip = args.skip,
            .learning_rate = args.learning_rate,
            .beta1 = static_cast<float>(config.beta1),
            .beta2 = static_cast<float>(config.beta2),
            .weight_decay = args.weight_decay});
}

void direct_muon(Ops& ops, Arena& scratch, const OptimizerConfig& config, const UpdateArgs& args, Tensor direction) {
  find_muon_direction(ops, scratch, {.momentum = config.momentum_or_default(), .nesterov = config.nesterov},
                      {.gradient = args.gradient,
                       .m = args.states[0],
                       .draws = args.draws,
                       .clip_factor = args.clip_factor,
                       .skip = args.skip},
                      direction);
}

void follow_muon(Ops& ops, Arena& scratch, const OptimizerConfig& config, const UpdateArgs& args, const Shape& shape) {
  apply_muon(ops, scratch, muon_scale_factor(kind_of(kMuonScales, config.muon_scale), shape[0], shape[1]),
             {.value = args.value,
              .update = args.gradient,
              .skip = args.skip,
              .learning_rate = args.learning_rate,
              .weight_decay = args.weight_decay});
}

constexpr MatrixUpdate kMuon{
    .direct = direct_muon, .make_whole = orthogonalize, .flops = orthogonalize_flops, .apply = follow_muon};

bool has_no_momentum(const OptimizerConfig& config) {
  return config.momentum_or_default() == 0;
}

constexpr std::array kRules{
    UpdateRule{.name = "adamw", .update = adamw},
    UpdateRule{.name = "sgd", .update = sgd, .is_stateless = has_no_momentum},
    UpdateRule{.name = "lion", .update = lion},
    UpdateRule{.name = "muon", .update_matrix = &kMuon, .is_stateless = has_no_momentum},
};
static_assert(same_names(kRules, kUpdateRules), "config/schema/update_rules.h has other rules");
static_assert(std::equal(kRules.begin(), kRules.end(), kUpdateRules.begin(),
                         [](const UpdateRule& rule, const UpdateRuleFacts& facts) {
                           return facts.needs_matrices == (rule.update_matrix != nullptr) &&
                                  facts.needs_matrices == (rule.update == nullptr);
                         }),
              "a rule has one of the two updates");

}  // namespace

Names UpdateRule::states(const OptimizerConfig& config) const {
  return is_stateless != nullptr && is_stateless(config) ? Names{} : row_named(kUpdateRules, name).states;
}

const UpdateRule& rule_of(const OptimizerConfig& config, const Parameter& parameter) {
  const UpdateRule& rule = row_named(kRules, config.name);
  return rule.update_matrix != nullptr && parameter.role != Role::matrix ? row_named(kRules, "adamw") : rule;
}

}  // namespace megatron
