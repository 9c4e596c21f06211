// Rules about encoders (model.family = "bert"), and about what they alone have.
#include "config/rules/violations.h"

namespace megatron {

namespace {

constexpr std::int64_t kFewestRows = 5;  // three that frame the two texts, and a token of each

}  // namespace

void check_bert(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  if (m.family != "bert") return;
  const auto refuse = [&](const char* key, bool given, const std::string& problem) {
    if (given) violations.add({key, "model.family"}, "model.family = \"bert\": {}", problem);
  };
  refuse("model.activation", m.gated(),
         fmt::format("activation = \"{}\" is gated, and the head has no gate; take one that is not", m.activation));
  refuse("model.residual", m.norms() == NormPosition::post && m.residuals() != ResidualOrder::sequential,
         fmt::format("norm_position = \"post\" normalizes after each part in turn, and residual = \"{}\" has both at "
                     "once; take residual = \"sequential\"",
                     m.residual));
  refuse("model.sequence_length", m.sequence_length > 0 && m.sequence_length < kFewestRows,
         fmt::format("sequence_length = {} is too short for [CLS] A [SEP] B [SEP]; take {} or more", m.sequence_length,
                     kFewestRows));
}

}  // namespace megatron
