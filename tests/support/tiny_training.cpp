#include "support/tiny_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "distributed/parallel/record_check.h"
#include "support/model_sizes.h"
#include "training/step/grid.h"

namespace megatron::test {

namespace {

/// The least router gap of this rank in an evaluation, which counts none: that of a training step in which nothing is
/// random, with the same weights and room.
double evaluation_gap(Config config, const ProcessGrid& grid, Backend& backend, const Replica& trained, int step) {
  config.model.hidden_dropout = config.model.attention_dropout = config.model.moe.jitter = 0;
  config.model.moe.capacity_factor = config.model.moe.evaluation_capacity_factor;
  if (config.model.moe.drop == "random") config.model.moe.drop = "position";
  Replica replica(config, grid, backend);
  const std::vector<TensorSlice> from = trained.all_slices(false), to = replica.all_slices(false);
  for (std::size_t i = 0; i < to.size(); ++i)
    std::memcpy(to[i].value.data(), from[i].value.data(), to[i].value.bytes());
  replica.optimizer().set_values_from_master();
  TinyBatches batches(config, grid.data().rank(), grid.context().rank());
  Timers timers;
  const StepSums sums = replica.forward_backward(batches.step(step), step, batches.loss(), timers);
  return replica.update(sums, {}, timers).least_gap;
}

}  // namespace

Config tiny_config() {
  Config config;
  config.model = model_of({.layers = 4, .hidden = 32, .heads = 4, .ffn = 128, .sequence = 16});
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  config.parallel.data = 1;
  config.optimizer.weight_decay = 0.1;
  config.learning_rate.peak = 1e-3;
  return config;
}

void like_llama(ModelConfig& model) {
  model.position_embedding = "rope";
  model.normalization = "rmsnorm";
  model.activation = "swiglu";
  model.bias = model.tie_embeddings = false;
  model.query_groups = 2;
}

void with_one_group(ModelConfig& model) {
  model.position_embedding = "alibi";
  model.query_groups = 1;
}

void with_normed_heads(ModelConfig& model) {
  model.position_embedding = "rope";
  model.rotary_fraction = 0.5;
  model.query_key_norm = true;
  model.activation = "geglu";
  model.query_groups = 1;
}

void with_window(ModelConfig& model) {
  model.position_embedding = "rope";
  model.attention_window = 3;
  model.given_head_size = 10;
  model.bias = {true, false, false};
  model.scale_embeddings = true;
}

void with_parallel_parts(ModelConfig& model) {
  model.residual = "parallel_one_norm";
  model.embedding_norm = model.head_bias = true;
}

void like_bert(ModelConfig& model) {
  model.family = "bert";
  model.norm_position = "post";
  model.embedding_norm = true;
  model.activation = "gelu_exact";
}

void like_megatron_bert(ModelConfig& model) {
  model.family = "bert";
}

void like_t5(ModelConfig& model) {
  model.family = "t5";
  model.layers = 3;
  model.decoder_layers = 1;
  model.decoder_sequence_length = 12;
  model.position_embedding = "relative";
  model.relative_buckets = 8;
  model.relative_max_distance = 12;
  model.normalization = "rmsnorm";
  model.bias = false;
  model.attention_scale = "none";
  model.scale_head = true;
  model.activation = "relu";
}

void like_megatron_t5(ModelConfig& model) {
  model.family = "t5";
  model.layers = model.decoder_layers = 2;
  model.decoder_sequence_length = 8;
  model.head_bias = true;
}

void with_experts(ModelConfig& model) {
  model.moe.experts = 4;
  model.moe.every = 2;
  model.moe.ffn_hidden_size = 48;
  model.moe.z_coefficient = 1e-3;
  model.moe.evaluation_capacity_factor = 2;
}

void with_balanced_experts(ModelConfig& model) {
  with_experts(model);
  model.moe.bias_rate = 0.01;
  model.moe.balance_coefficient = 0;
}

void with_shared_experts(ModelConfig& model) {
  with_experts(model);
  model.moe.shared_experts = 2;
  model.moe.shared_gate = true;
}

void with_residual_experts(ModelConfig& model) {
  with_experts(model);
  model.moe.residual = true;
  model.moe.jitter = 0.1;
}

TrainingTrace train_tiny(Config config, int tensor, int data, int pipeline, int steps, bool checked) {
  config.parallel.tensor = tensor;
  config.parallel.data = data;
  config.parallel.pipeline = pipeline;
  TrainingTrace trace;
  float scale = 1;
  std::mutex mutex;
  const auto context = static_cast<int>(config.parallel.context);
  run_as_threads(tensor * context * data * pipeline, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend(static_cast<int>(config.run.threads));
    std::optional<CheckedCollectives> checks;
    if (checked) checks.emplace(grid, *backend.device);
    Replica replica(config, grid, backend);
    if (checked) {
      check_records(grid, replica.store());
      check_shares(world, replica.owned_slices());
    }
    TinyBatches batches(config, grid.data().rank(), grid.context().rank());
    Timers timers;
    double least_gap = std::numeric_limits<double>::infinity();
    for (int step = 1; step <= steps; ++step) {
      const std::span<const MicroBatch> micro_batches = batches.step(step);
      const StepSums sums = replica.forward_backward(micro_batches, step, batches.loss(), timers);
      if (step == 1) {
        const std::lock_guard lock(mutex);
        scale = static_cast<float>(sums.loss_scale);
        for (const TensorSlice& slice : replica.summed_gradients()) assemble(slice, trace.gradients);
      }
      const Replica::Update update = replica.update(
          sums, {.learning_rate = config.learning_rate.peak, .weight_decay = config.optimizer.weight_decay}, timers);
      least_gap = std::min(least_gap, update.choices.empty() ? least_gap : update.least_gap);
      if (world.rank() == 0) {
        trace.choices.emplace_back(update.choices.begin(), update.choices.end());
        trace.losses.push_back(update.loss.total);
        trace.norms.push_back(update.gradient_norm);
      }
    }
    const double evaluation = replica.evaluate(batches.step(steps), batches.loss().counts, timers).total;
    replica.wait_for_values();
    if (config.model.moe.top_k < config.model.moe.experts) {
      least_gap = std::min(least_gap, evaluation_gap(config, grid, backend, replica, steps));
    }
    if (checks) checks->finish();
    const std::lock_guard lock(mutex);
    trace.gap = std::min(trace.gap, least_gap);
    if (world.rank() == 0) trace.evaluation = evaluation;
    for (const TensorSlice& slice : replica.owned_slices()) assemble(slice, trace.parameters);
  });
  for (auto& [name, gradient] : trace.gradients) {
    for (float& number : gradient) number /= scale;
  }
  return trace;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference) / std::sqrt(norm);
}

std::vector<double> evaluate_tiny(const Config& config) {
  std::vector<double> losses;
  run_as_threads(static_cast<int>(config.parallel.pipeline), [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    CheckedCollectives checks(grid, *backend.device);
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    const double before = replica.evaluate(batches.step(9), batches.loss().counts, timers).total;
    const StepSums sums = replica.forward_backward(batches.step(1), 1, batches.loss(), timers);
    replica.update(sums, {.learning_rate = 1e-3}, timers);
    const double after = replica.evaluate(batches.step(9), batches.loss().counts, timers).total;
    checks.finish();
    if (world.rank() == 0) losses = {before, after};
  });
  return losses;
}

}  // namespace megatron::test
