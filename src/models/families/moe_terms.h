// Terms of the loss that layers with experts add to, after the terms of the model's family.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"
#include "models/families/loss_terms.h"

namespace megatron {

/// Their indices among all terms, kNone where the coefficient is 0.
struct MoeTerms {
  int balance, z;
};
MoeTerms moe_terms(const ModelConfig& model, int own_terms);

/// The layers with experts, as their parameters' names begin, in the order of the model: the rows of a RouteTally.
std::vector<std::string> expert_layer_names(const ModelConfig& model);

/// A family's own terms, and these.
LossTerms with_moe_terms(LossTerms own, const ModelConfig& model);

}  // namespace megatron
