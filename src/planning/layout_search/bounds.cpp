#include "planning/layout_search/bounds.h"

#include <algorithm>

#include "models/families/family.h"
#include "models/families/layers.h"
#include "training/step/grid.h"

namespace megatron {

namespace {

// A rank of the layout with this many of its layers, without pipeline, and with no more copies than expert ranks.
Config one_rank(Config config, std::int64_t layers) {
  config.model.layers = layers;
  config.parallel.pipeline = config.parallel.virtual_stages = 1;
  config.parallel.data = config.parallel.expert;
  config.parallel.schedule = kSchedules.front().name;
  config.parallel.layers_per_stage.clear();
  config.optimizer.share = "none";
  config.train.batch_ramp_up = {};
  config.train.curriculum = {};
  config.train.global_batch_size = config.train.micro_batch_size * config.parallel.data;
  return config;
}

double best_rate(const Config& config, const Hardware& hardware) {
  const DType type = config.precision.dtype();
  const double best = hardware.rates(type).best_product();
  return best > 0 ? best : hardware.peak(type) * hardware.used.product_efficiency;
}

// Time of the matrices alone, at the best rate.
double matrix_seconds(const Config& config, const Hardware& hardware) {
  const ModelConfig& model = config.model;
  const double tokens =
      static_cast<double>(config.train.global_batch_size) * static_cast<double>(model.sequence_length);
  return tokens * 6 * static_cast<double>(multiplying_parameters(model)) / grid_shape(config).ranks() /
         best_rate(config, hardware);
}

// Layers after which the model repeats.
std::int64_t period_of(const ModelConfig& model) {
  return model.moe.experts > 0 ? model.moe.every : 1;
}

}  // namespace

const LayoutBounds::Layer* LayoutBounds::layer_of(const Config& config) {
  const MoeConfig& moe = config.model.moe;
  const std::int64_t period = period_of(config.model);
  if (config.model.has_decoder() || !moe.layers.empty() || config.model.layers % period != 0) return nullptr;
  const auto& groups = config.optimizer_groups;  // by name, a layer may be updated in another way than the next
  if (std::any_of(groups.begin(), groups.end(), [](const auto& group) { return !group.names.empty(); })) return nullptr;
  const ParallelConfig& parallel = config.parallel;
  const bool recomputes = config.recompute.of_chunk(1) > 0;
  const auto [place, is_new] =
      layers_.try_emplace(Cut{parallel.tensor, parallel.context, parallel.expert, parallel.sequence_parallel,
                              config.train.micro_batch_size, recomputes, config.recompute.parts_made().given});
  if (!is_new) return &place->second;
  // A period's share is what the second of two periods adds.
  for (const int periods : {2, 1}) {
    const double sign = (periods == 2 ? 1.0 : -1.0) / static_cast<double>(period);
    const RecordedLayout layout = record_layout(one_rank(config, periods * period), hardware_.ranks_per_node);
    const MemoryPlan& memory = layout.played.front().memory;
    place->second.seconds += sign * step_time(layout, hardware_).costs.total();
    place->second.activations += sign * static_cast<double>(memory.activations);
    place->second.weights += sign * static_cast<double>(memory.weights);
    place->second.gradients += sign * static_cast<double>(memory.gradients);
    place->second.optimizer += sign * static_cast<double>(memory.optimizer);
  }
  return &place->second;
}

// Stages wait for each other as the pipeline's formula says, if all are as fast as their layers. With several chunks
// it holds for equal ones alone.
double LayoutBounds::seconds(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const auto micro_batches = static_cast<double>(micro_batches_per_step(config)),
             stages = static_cast<double>(parallel.pipeline);
  const Layer* const layer = layer_of(config);
  const double busy = layer == nullptr
                          ? matrix_seconds(config, hardware_)
                          : micro_batches * static_cast<double>(config.model.layers) / stages * layer->seconds;
  const std::int64_t chunks = parallel.pipeline * parallel.virtual_stages;
  const bool equal = layer != nullptr && config.model.layers / chunks % period_of(config.model) == 0;
  if (row_named(kSchedules, parallel.schedule).splits_backward || (parallel.virtual_stages > 1 && !equal)) return busy;
  return busy * (1 + (stages - 1) / (micro_batches * static_cast<double>(parallel.virtual_stages)));
}

// The first stage holds as many micro-batches as there are stages. Of unequal stages the fullest may be a later one:
// there activations do not count.
double LayoutBounds::bytes(const Config& config) {
  const GridShape shape = grid_shape(config);
  const double layers = static_cast<double>(config.model.all_layers()) / shape.pipeline;
  const Layer* const layer = layer_of(config);
  if (layer == nullptr) return 0;
  const bool equal = config.model.layers / shape.pipeline % period_of(config.model) == 0;
  const double in_flight =
      equal ? std::min<double>(shape.pipeline, static_cast<double>(micro_batches_per_step(config))) : 0;
  const ShareRow& share = config.optimizer.shares();
  const double weights = layer->weights / share.parts_of_weights(shape.shards()),
               gradients = layer->gradients / share.parts_of_gradients(shape.shards()),
               optimizer = layer->optimizer / share.parts_of_state(shape.shards());
  return layers * (weights + gradients + optimizer + in_flight * layer->activations);
}

}  // namespace megatron
