#include "planning/dry_run/analytic_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/byte_text.h"
#include "models/families/layers.h"
#include "training/pipeline/schedule.h"

namespace megatron {

namespace {

struct Layer {
  std::string formula;
  double per_token_and_width = 0;  // bytes / (s b h)
};

// The parts that selective recomputation leaves out are the published terms of the same tensors; scores are left out by
// the published kind of it.
Layer analytic_layer(const Config& config) {
  const auto t = static_cast<double>(config.parallel.tensor), h = static_cast<double>(config.model.hidden_size);
  const bool keeps_scores = config.recompute.kind() != RecomputeMode::selective;
  const double scores =
      keeps_scores ? 5 * static_cast<double>(config.model.attention_heads * config.model.sequence_length) / h : 0;
  const RecomputeParts made = config.recompute.parts_made();
  const int outside = made.has(RecomputePart::norms) ? 6 : 10;
  const int inside = made.has(RecomputePart::feed_forward) ? 8 : made.has(RecomputePart::activations) ? 16 : 24;
  const int all = outside + inside;
  if (config.parallel.tensor == 1) {
    return {keeps_scores ? fmt::format("s b h ({} + 5 a s / h)", all) : fmt::format("{} s b h", all), all + scores};
  }
  if (config.parallel.sequence_parallel) {
    return {keeps_scores ? fmt::format("s b h / t ({} + 5 a s / h)", all) : fmt::format("{} s b h / t", all),
            (all + scores) / t};
  }
  return {fmt::format("s b h ({} + {} / t{})", outside, inside, keeps_scores ? " + 5 a s / (h t)" : ""),
          outside + (inside + scores) / t};
}

// In chunks they are in scratch.
bool keeps_logits(const Config& config) {
  return config.model.task_outputs == 0 && config.model.head_chunks == 1;
}

double in_flight(const Config& config) {
  return schedule_named(config.parallel.schedule)
      .in_flight(static_cast<double>(config.parallel.pipeline), static_cast<double>(micro_batches_per_step(config)),
                 static_cast<double>(config.parallel.virtual_stages));
}

const char* what_is_whole(const ShareRow& share) {
  if (share.weights) return ": gradients and weights of two layers, and outside of layers, are whole";
  return share.gradients ? ": gradients of two layers, and outside of layers, are whole" : "";
}

}  // namespace

AnalyticMemory analytic_memory(const Config& config) {
  const ModelConfig& model = config.model;
  const ShareRow& share = config.optimizer.shares();
  AnalyticMemory published;
  const auto optimizer = static_cast<double>(sizeof(float) + 2 * size_of(config.optimizer.moments()));
  const auto context = static_cast<double>(config.parallel.context);
  const double copies = context * static_cast<double>(config.parallel.data);
  published.bytes_per_parameter = 2 / share.parts_of_weights(copies) + 4 / share.parts_of_gradients(copies) +
                                  optimizer / share.parts_of_state(copies);

  const double s = static_cast<double>(model.sequence_length) / context;  // rows of a rank
  const auto b = static_cast<double>(config.train.micro_batch_size * model.task_choices);
  const auto h = static_cast<double>(model.hidden_size), t = static_cast<double>(config.parallel.tensor);
  const Layer layer = analytic_layer(config);
  published.layer = layer.formula + (config.parallel.context > 1 ? " / c" : "");
  published.layer_bytes = layer.per_token_and_width * s * b * h;

  // This stage's chunks: every stages-th chunk of the model.
  const std::vector<std::int64_t> chunks = layers_per_chunk(model, config.parallel);
  std::int64_t layers = 0, recomputed = 0;
  for (std::size_t i = 0; i < chunks.size(); i += static_cast<std::size_t>(config.parallel.pipeline)) {
    layers += chunks[i];
    recomputed += config.recompute.of_chunk(chunks[i]);
  }
  const double input = 2 * s * b * h / (config.parallel.sequence_parallel ? t : 1);
  const double of_layers =
      static_cast<double>(layers - recomputed) * published.layer_bytes + static_cast<double>(recomputed) * input;
  const double embedding = (8 * s * b + s * b * h) / t;
  published.activations = in_flight(config) * (of_layers + embedding);
  if (config.parallel.pipeline == 1) {
    const double norm = 2 * s * b * h / t, vocabulary = static_cast<double>(model.padded_vocab());
    published.activations += norm;
    if (model.task_outputs == 0) published.activations += norm;
    if (keeps_logits(config)) published.activations += 4 * s * b * vocabulary / t;
  }
  return published;
}

std::string compare_with_analytic(const Config& config, const MemoryPlan& first_stage) {
  const AnalyticMemory published = analytic_memory(config);
  const auto parameters = static_cast<double>(first_stage.parameters);
  const auto state = static_cast<double>(first_stage.weights + first_stage.gradients + first_stage.optimizer +
                                         first_stage.offloaded());
  std::string text =
      fmt::format("compare   Megatron-LM's formulas for stage 0: {:.4g} bytes per parameter, {} (here {:.4g}, {}{}{})",
                  published.bytes_per_parameter, format_bytes(published.bytes_per_parameter * parameters),
                  state / parameters, format_bytes(state), what_is_whole(config.optimizer.shares()),
                  first_stage.offloaded() > 0 ? ", with what is offloaded" : "");
  if (config.model.has_decoder()) return text + "\n";  // no formula of activations is published for two streams
  const bool recomputes = config.recompute.of_chunk(1) > 0;
  std::vector<std::string> reasons;
  if (config.precision.dtype() == DType::f32) reasons.emplace_back("fp32 activations");
  const ModelConfig& model = config.model;
  if (model.ffn_hidden_size != 4 * model.hidden_size || model.query_groups != model.attention_heads || model.gated()) {
    reasons.emplace_back("the formula is for a feed-forward part of two 4 h matrices and one group per head");
  }
  if (config.recompute.kind() == RecomputeMode::none) reasons.emplace_back("no attention scores are kept (5 a s / h)");
  reasons.emplace_back("no dropout masks are kept (2 s b h)");
  if (recomputes) reasons.emplace_back("recomputed activations are in scratch");
  if (config.parallel.pipeline == 1 && model.head_chunks > 1) reasons.emplace_back("logits are in scratch");
  if (config.parallel.pipeline > 1) reasons.emplace_back("buffers of what stages send and receive");
  if (row_named(kSchedules, config.parallel.schedule).splits_backward)
    reasons.emplace_back("inputs of delayed weight gradients");
  return text + fmt::format("; activations {} per layer{}, {} (here {}: {})\n", published.layer,
                            recomputes ? " without recomputation" : "", format_bytes(published.activations),
                            format_bytes(static_cast<double>(first_stage.activations)), fmt::join(reasons, "; "));
}

}  // namespace megatron
