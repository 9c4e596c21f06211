// Rules about the update: learning rate, weight decay, loss scale, loss.
#include <algorithm>
#include <utility>

#include "base/core/named_rows.h"
#include "config/rules/violations.h"
#include "config/schema/parameter_groups.h"

namespace megatron {
namespace {

void check_learning_rate(const Config& c, Violations& violations) {
  const LearningRateConfig& l = c.learning_rate;
  if (l.minimum > l.peak) {
    violations.add({"learning_rate.minimum", "learning_rate.peak"},
                   "learning_rate.minimum = {} is above learning_rate.peak = {}", l.minimum, l.peak);
  }
  if ((l.warmup_steps > 0) + (l.warmup_samples > 0) + (l.warmup_tokens > 0) + (l.warmup_fraction > 0) > 1) {
    violations.add(
        {"learning_rate.warmup_steps", "learning_rate.warmup_samples", "learning_rate.warmup_tokens",
         "learning_rate.warmup_fraction"},
        "at most one of learning_rate.warmup_steps, warmup_samples, warmup_tokens, warmup_fraction says the warm-up");
  }
  if ((l.decay_steps > 0) + (l.decay_samples > 0) + (l.decay_tokens > 0) > 1) {
    violations.add({"learning_rate.decay_steps", "learning_rate.decay_samples", "learning_rate.decay_tokens"},
                   "at most one of learning_rate.decay_steps, decay_samples, decay_tokens says the decay length");
  }
  const int wsd_lengths = (l.wsd_decay_steps > 0) + (l.wsd_decay_samples > 0) + (l.wsd_decay_tokens > 0);
  const std::vector<std::string> wsd_keys = {"learning_rate.wsd_decay_steps", "learning_rate.wsd_decay_samples",
                                             "learning_rate.wsd_decay_tokens", "learning_rate.decay"};
  if (wsd_lengths > 1 || (l.decay == "wsd" && wsd_lengths == 0)) {
    violations.add(wsd_keys,
                   "learning_rate.decay = \"wsd\" takes exactly one of learning_rate.wsd_decay_steps, "
                   "wsd_decay_samples, wsd_decay_tokens, which say how long the decay at the end is");
  }
}

void check_weight_decay(const Config& c, Violations& violations) {
  const OptimizerConfig& o = c.optimizer;
  const bool constant = o.weight_decay_schedule == "constant";
  if (constant && o.weight_decay_end.value_or(0) != 0) {  // 0: as earlier versions wrote their resolved files
    violations.add({"optimizer.weight_decay_end", "optimizer.weight_decay_schedule"},
                   "optimizer.weight_decay_end = {} belongs to optimizer.weight_decay_schedule = \"linear\" or "
                   "\"cosine\", not \"constant\"",
                   *o.weight_decay_end);
  } else if (!constant && !o.weight_decay_end) {
    violations.add(
        {"optimizer.weight_decay_schedule", "optimizer.weight_decay_end"},
        "optimizer.weight_decay_schedule = \"{}\" leads from weight_decay = {} to a weight_decay_end that is "
        "not given; add optimizer.weight_decay_end (0: none is left with the last step)",
        o.weight_decay_schedule, o.weight_decay);
  }
}

void check_scaling(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  if (kind_of(kScalings, c.optimizer.scaling) == Scaling::none) return;
  if (m.base_hidden_size == 0) {
    violations.add({"optimizer.scaling", "model.base_hidden_size"},
                   "optimizer.scaling = \"{}\" needs model.base_hidden_size, the width that the learning rate, the "
                   "weight decay and model.init_std are for",
                   c.optimizer.scaling);
  }
  if (m.base_head_size > 0 && m.base_hidden_size == m.hidden_size && m.attention_heads > 0 &&
      m.base_head_size != m.head_size()) {
    violations.add({"model.base_head_size", "model.base_hidden_size"},
                   "model.base_head_size = {} is not the model's head size, {}, and the model is of base_hidden_size = "
                   "{} itself; leave it out",
                   m.base_head_size, m.head_size(), m.base_hidden_size);
  }
}

void check_parameter_groups(const Config& c, Violations& violations) {
  for (std::size_t i = 0; i < c.optimizer_groups.size(); ++i) {
    const ParameterGroupConfig& group = c.optimizer_groups[i];
    const OptimizerConfig settings = settings_of(c.optimizer, group);
    const UpdateRuleFacts& rule = row_named(kUpdateRules, settings.name);
    for (const std::string& key : group.keys) {
      const std::vector<std::string> readers = update_rules_with(key);
      if (readers.empty() || rule.keys.contains(key)) continue;
      violations.add({"optimizer.groups", "optimizer.name"}, "optimizer.groups[{}].{} belongs to name = {}, not \"{}\"",
                     i, key, one_of_text(readers), settings.name);
    }
    if (settings.weight_decay > 0 && c.optimizer.weight_decay == 0 && c.optimizer.weight_decay_schedule != "constant") {
      violations.add({"optimizer.groups", "optimizer.weight_decay", "optimizer.weight_decay_schedule"},
                     "optimizer.groups[{}].weight_decay = {} is to change in proportion to optimizer.weight_decay, and "
                     "with optimizer.weight_decay_schedule = \"{}\" that grows from 0; begin with a number above 0",
                     i, settings.weight_decay, c.optimizer.weight_decay_schedule);
    }
  }
}

/// The first rule of this run that updates matrices as wholes; empty: none does.
std::string matrix_rule_of(const Config& c) {
  std::vector<std::string> names = {c.optimizer.name};
  for (const ParameterGroupConfig& group : c.optimizer_groups) names.push_back(settings_of(c.optimizer, group).name);
  const auto found = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return row_named(kUpdateRules, name).needs_matrices; });
  return found == names.end() ? "" : *found;
}

void check_share_within(const Config& c, Violations& violations) {
  const std::int64_t within = c.optimizer.share_within, least = c.parallel.context * c.parallel.expert;
  if (within == 0 || !c.optimizer.shares().state) return;
  if (within == 1) {
    violations.add({"optimizer.share_within", "optimizer.share"},
                   "optimizer.share_within = 1 shares nothing; take share = \"none\", or 2 and more");
  } else if (within % least != 0) {
    violations.add(
        {"optimizer.share_within", "parallel.context", "parallel.expert"},
        "optimizer.share_within = {} is no multiple of parallel.context × parallel.expert = {} × {}: a set of "
        "ranks that share has whole samples and all experts",
        within, c.parallel.context, c.parallel.expert);
  }
  if (const std::string name = matrix_rule_of(c); !name.empty()) {
    violations.add({"optimizer.share_within", "optimizer.name"},
                   "optimizer.share_within = {} with the rule \"{}\": whole matrices are shared out among all copies; "
                   "leave it out",
                   within, name);
  }
}

// Refusals of what needs a layer's whole gradients after its backward of a micro-batch, or its weights between passes.
void check_share(const Config& c, Violations& violations) {
  if (!c.optimizer.shares().gradients) return;
  if (c.optimizer.shares().weights && c.parallel.pipeline > 1) {
    violations.add(
        {"optimizer.share", "parallel.pipeline"},
        "optimizer.share = \"{}\" with parallel.pipeline = {}: a pipeline stage alternates forwards and backwards of "
        "many micro-batches, and each would gather the weights of all its layers again; take share = "
        "\"gradients\", or parallel.pipeline = 1",
        c.optimizer.share, c.parallel.pipeline);
  }
  if (row_named(kSchedules, c.parallel.schedule).splits_backward) {
    violations.add(
        {"optimizer.share", "parallel.schedule"},
        "optimizer.share = \"{}\" gives a layer's gradients away when its backward ends, and "
        "parallel.schedule = \"{}\" makes some of them later; take share = \"state\", or schedule = \"1f1b\"",
        c.optimizer.share, c.parallel.schedule);
  }
  if (const std::string name = matrix_rule_of(c); !name.empty()) {
    violations.add(
        {"optimizer.share", "optimizer.name"},
        "optimizer.share = \"{}\" gives each rank a part of a matrix' gradient, and the rule \"{}\" needs it "
        "whole; take share = \"state\"",
        c.optimizer.share, name);
  }
}

void check_precision(const Config& c, Violations& violations) {
  const PrecisionConfig &p = c.precision, defaults;
  if (p.minimum_loss_scale > p.initial_loss_scale) {
    violations.add({"precision.minimum_loss_scale", "precision.initial_loss_scale"},
                   "precision.minimum_loss_scale = {} is above precision.initial_loss_scale = {}", p.minimum_loss_scale,
                   p.initial_loss_scale);
  }
  if (p.compute == "fp16" && p.loss_scale == 0) return;
  const std::pair<const char*, bool> given[] = {
      {"initial_loss_scale", p.initial_loss_scale != defaults.initial_loss_scale},
      {"minimum_loss_scale", p.minimum_loss_scale != defaults.minimum_loss_scale},
      {"loss_scale_window", p.loss_scale_window != defaults.loss_scale_window},
      {"loss_scale_hysteresis", p.loss_scale_hysteresis != defaults.loss_scale_hysteresis}};
  for (const auto& [key, differs] : given) {
    if (!differs) continue;
    violations.add({std::string("precision.") + key, "precision.loss_scale", "precision.compute"},
                   "precision.{} belongs to the dynamic loss scale, which {} does not have; leave it out, or {}", key,
                   p.loss_scale > 0 ? fmt::format("precision.loss_scale = {}", p.loss_scale)
                                    : fmt::format("precision.compute = \"{}\"", p.compute),
                   p.loss_scale > 0 ? "leave loss_scale out" : "compute in \"fp16\"");
  }
}

void check_loss(const Config& c, Violations& violations) {
  const LossConfig& loss = c.loss;
  if (loss.name != "key_tokens") return;
  if (loss.token_ids.empty()) {
    violations.add({"loss.token_ids", "loss.name"},
                   "loss.name = \"key_tokens\" needs loss.token_ids, the ids of the tokens that count: [464, 1169]");
  }
  std::vector<std::int64_t> sorted = loss.token_ids;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    violations.add({"loss.token_ids"}, "loss.token_ids has {} twice; give each once", *twice);
  }
  if (!sorted.empty() && c.model.vocab_size > 0 && sorted.back() >= c.model.vocab_size) {
    violations.add({"loss.token_ids", "model.vocab_size"},
                   "loss.token_ids has {}, and the vocabulary of {} ends with {}; no text has such a token",
                   sorted.back(), c.model.vocab_size, c.model.vocab_size - 1);
  }
}

}  // namespace

void check_update(const Config& config, Violations& violations) {
  check_learning_rate(config, violations);
  check_weight_decay(config, violations);
  check_scaling(config, violations);
  check_share(config, violations);
  check_share_within(config, violations);
  check_parameter_groups(config, violations);
  check_precision(config, violations);
  check_loss(config, violations);
}

}  // namespace megatron
