#include "training/optimizer/update_rules.h"

namespace megatron {

namespace {

void adamw(Ops& ops, const OptimizerConfig& config, const UpdateArgs& args) {
  ops.adamw({.value = args.value,
             .gradient = args.gradient,
             .m = args.states[0],
             .v = args.states[1],
             .clip_factor = args.clip_factor,
             .skip = args.skip,
             .learning_rate = args.learning_rate,
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
           .clip_factor = args.clip_factor,
           .skip = args.skip,
           .learning_rate = args.learning_rate,
           .momentum = static_cast<float>(config.momentum),
           .weight_decay = args.weight_decay});
}

void lion(Ops& ops, const OptimizerConfig& config, const UpdateArgs& args) {
  ops.lion({.value = args.value,
            .gradient = args.gradient,
            .m = args.states[0],
            .clip_factor = args.clip_factor,
            .skip = args.skip,
            .learning_rate = args.learning_rate,
            .beta1 = static_cast<float>(config.beta1),
            .beta2 = static_cast<float>(config.beta2),
            .weight_decay = args.weight_decay});
}

constexpr std::array kRules{
    UpdateRule{.name = "adamw", .update = adamw},
    UpdateRule{.name = "sgd",
               .update = sgd,
               .is_stateless = [](const OptimizerConfig& config) { return config.momentum == 0; }},
    UpdateRule{.name = "lion", .update = lion},
};
static_assert(same_names(kRules, kUpdateRules), "config/schema/update_rules.h has other rules");

}  // namespace

Names UpdateRule::states(const OptimizerConfig& config) const {
  return is_stateless != nullptr && is_stateless(config) ? Names{} : row_named(kUpdateRules, name).states;
}

const UpdateRule& rule_of(const OptimizerConfig& config, const Parameter&) {
  return row_named(kRules, config.name);
}

}  // namespace megatron
