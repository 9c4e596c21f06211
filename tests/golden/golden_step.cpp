#include "golden/golden_step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "golden/golden_micro_batches.h"
#include "models/families/family.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

namespace megatron::test {

namespace {

/// By term of the loss.
std::vector<double> counts_of(const Config& config, const GoldenBatch& batch) {
  std::vector<double> counts = {std::accumulate(batch.weights.begin(), batch.weights.end(), 0.0)};
  if (!batch.labels.empty()) {
    const auto labelled = std::count_if(batch.labels.begin(), batch.labels.end(), [](int l) { return l >= 0; });
    counts.push_back(static_cast<double>(labelled));
  }
  for (const LossTerm& term : family_of(config.model).loss_terms(config)) {
    if (term.per_sample > 0) counts.push_back(term.per_sample * static_cast<double>(config.train.global_batch_size));
  }
  return counts;
}

Config config_of(const Golden& golden, const GoldenLayout& layout) {
  Config config = golden.config;
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.data = layout.data;
  config.parallel.expert = layout.expert;
  config.parallel.schedule = layout.schedule;
  config.parallel.virtual_stages = layout.virtual_stages;
  config.parallel.layers_per_stage = layout.layers_per_stage;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  config.recompute.mode = layout.recompute ? "full" : "none";
  config.train.micro_batch_size = layout.micro_batch;
  return config;
}

double rounded_gradient_error(const Golden& golden, const std::string& name, std::vector<float> got) {
  const std::vector<float>& want = golden.gradients.at(name);
  std::string judged_by = name;
  if (const auto key = name.find("key.bias"); key != std::string::npos) judged_by.replace(key, 8, "query.bias");
  for (std::size_t i = 0; i < want.size(); ++i) got[i] -= want[i];
  return norm_of(got) / norm_of(golden.gradients.at(judged_by));
}

}  // namespace

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

std::string in_words(const GoldenLayout& layout) {
  return fmt::format("tensor {} pipeline {} {} data {} expert {} micro-batch {} {}{}{}", layout.tensor, layout.pipeline,
                     layout.layers_per_stage, layout.data, layout.expert, layout.micro_batch, layout.schedule,
                     layout.sequence_parallel ? " sequence" : "", layout.recompute ? " recompute" : "");
}

GoldenStep run_golden_step(const Golden& golden, const GoldenLayout& layout) {
  const Config config = config_of(golden, layout);
  GoldenStep step;
  std::mutex mutex;
  run_as_threads(layout.tensor * layout.pipeline * layout.data, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    CheckedCollectives checks(grid, *backend.device);
    Replica replica(config, grid, backend);
    set_values(replica.store(), golden.parameters);
    const GoldenMicroBatches micro_batches(config, golden.batch, grid.data().rank());
    const std::vector<double> counts = counts_of(config, golden.batch);
    Timers timers;
    const StepSums sums = replica.forward_backward(micro_batches.list(), 1, {.counts = counts}, timers);
    {
      const std::lock_guard lock(mutex);
      for (const TensorSlice& slice : replica.summed_gradients()) assemble(slice, step.gradients);
    }
    const Replica::Update update = replica.update(sums, {}, timers);
    checks.finish();
    if (world.rank() != 0) return;
    step.terms.assign(update.loss.terms.begin(), update.loss.terms.end());
    step.loss = update.loss.total;
    step.gradient_norm = update.gradient_norm;
  });
  return step;
}

void check_golden_step(const Golden& golden, const GoldenStep& step, double tolerance) {
  CHECK(step.loss == Approx(golden.loss).epsilon(tolerance));
  CHECK(step.gradient_norm == Approx(golden.gradient_norm).epsilon(tolerance));
  REQUIRE(step.gradients.size() == golden.gradients.size());
  for (const auto& [parameter, gradient] : step.gradients) {
    INFO(parameter);
    REQUIRE(golden.gradients.count(parameter) == 1);
    REQUIRE(gradient.size() == golden.gradients.at(parameter).size());
    CHECK(rounded_gradient_error(golden, parameter, gradient) <= tolerance);
  }
}

}  // namespace megatron::test
