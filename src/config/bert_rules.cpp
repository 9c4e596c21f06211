// Rules about encoders (model.family = "bert"), and about what they alone have.
#include "config/violations.h"

namespace megatron {

namespace {

constexpr std::int64_t kFewestRows = 5;  // three that frame the two texts, and a token of each

}  // namespace

void check_sentence_samples(const Config& c, Violations& violations) {
  const auto refuse = [&](const char* key, bool given, const char* problem) {
    if (given) violations.add({key, "model.family"}, "model.family = \"{}\": {}", c.model.family, problem);
  };
  refuse("train.curriculum", !c.train.curriculum.schedule.empty(),
         "train.curriculum would cut samples, which end with a token of their frame; leave it out");
  refuse("loss.name", c.loss.name != LossConfig{}.name,
         "loss.name other than \"language_model\" is a loss of next tokens of a text; leave it out");
  refuse(
      "data.reset_attention_mask", c.data.knows_documents(),
      "data.reset_attention_mask, reset_position_ids and eod_mask_loss are about documents in a row, and a sample is "
      "of one document; leave them out");
  refuse("data.split_by", c.data.split_by == "tokens",
         "data.split_by = \"tokens\" cuts documents, and a sample is made of a document's sentences; take "
         "\"documents\", or leave it out");
  refuse("evaluation.tasks", !c.evaluation.tasks.empty(),
         "evaluation.tasks score next tokens of a text, which this family does not predict; leave them out");
}

void check_bert(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  if (m.family != "bert") {
    const DataConfig defaults;
    if (m.family != "t5" && (c.data.mask_probability != defaults.mask_probability ||
                             c.data.short_probability != defaults.short_probability)) {
      violations.add(
          {"data.mask_probability", "data.short_probability", "model.family"},
          "data.mask_probability and short_probability belong to model.family = \"bert\" or \"t5\", not \"{}\"",
          m.family);
    }
    if (m.norm_position == "pre") return;
    violations.add({"model.norm_position", "model.family"},
                   "model.norm_position = \"{}\" belongs to model.family = \"bert\", not \"{}\"", m.norm_position,
                   m.family);
    return;
  }
  const auto refuse = [&](const char* key, bool given, const std::string& problem) {
    if (given) violations.add({key, "model.family"}, "model.family = \"bert\": {}", problem);
  };
  refuse("model.position_embedding", m.position_embedding == "alibi",
         "position_embedding = \"alibi\" lowers scores of earlier tokens, and an encoder sees later ones too; take "
         "\"learned\", \"rope\" or \"none\"");
  refuse("model.attention_window", m.attention_window > 0,
         "attention_window ends at a token's own position, and an encoder sees later ones too; leave it out");
  refuse("model.activation", m.gated(),
         fmt::format("activation = \"{}\" is gated, and the head has no gate; take one that is not", m.activation));
  refuse("model.residual", m.norm_position == "post" && m.residual != "sequential",
         fmt::format("norm_position = \"post\" normalizes after each part in turn, and residual = \"{}\" has both at "
                     "once; take residual = \"sequential\"",
                     m.residual));
  refuse("model.sequence_length", m.sequence_length > 0 && m.sequence_length < kFewestRows,
         fmt::format("sequence_length = {} is too short for [CLS] A [SEP] B [SEP]; take {} or more", m.sequence_length,
                     kFewestRows));
  check_sentence_samples(c, violations);
}

}  // namespace megatron
