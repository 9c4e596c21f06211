#include "inference/decoding/label_scorer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/rules/resolve.h"
#include "distributed/comm/gather.h"
#include "distributed/comm/meanings.h"

namespace megatron {

namespace {

PassForm form_of(const Config& config) {
  return {batch_layout(config), [classes = config.model.task_classes()](const BatchLayout& batch, Arena& memory) {
            TargetResults results;
            results.scores = memory.allocate("scores", {batch.sizes.whole_samples(), classes}, DType::f32);
            return results;
          }};
}

std::vector<double> softmax(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(static_cast<double>(logit) - largest));
  for (double& share : shares) share /= sum;
  return shares;
}

/// Samples of one rank, and their probabilities.
using NumberedRows = std::vector<std::pair<std::int64_t, std::vector<double>>>;

/// All ranks' rows in the order of the samples, on rank 0.
std::vector<std::vector<double>> in_order(Communicator& world, const NumberedRows& mine, std::int64_t count) {
  std::vector<std::vector<double>> rows;
  if (world.rank() == 0) rows.resize(static_cast<std::size_t>(count));
  for (NumberedRows& part : gather(world, mine)) {
    for (auto& [sample, row] : part) rows[static_cast<std::size_t>(sample)] = std::move(row);
  }
  return rows;
}

}  // namespace

Config config_for_labels(const CheckpointReader& checkpoint, const ScoringLayout& layout, const std::string& task) {
  Config config = config_for_passes(checkpoint, layout);
  verify(config.task.name == task, ErrorKind::configuration,
         "{}: this model {}, and --task {} needs one that was fine-tuned for it: train one with task.name = \"{}\" and "
         "checkpoint.initialize_from",
         checkpoint.path(),
         config.task.given() ? fmt::format("is for task.name = \"{}\"", config.task.name) : "has no head of a task",
         task, task);
  config.train.global_batch_size *= micro_batches_together(
      {.tensor = static_cast<int>(layout.tensor), .pipeline = static_cast<int>(layout.pipeline)});
  resolve(config, layout.ranks, nullptr);
  return config;
}

MemoryUse plan_labels(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind kind) {
  const PassForm form = form_of(config);
  MemoryUse use = ForwardPasses::plan(config, shape, at, form, kind);
  use.batch += LabelScores::bytes(form.batch.sizes, config.model.task_classes(), micro_batches_together(shape));
  return use;
}

LabelScorer::LabelScorer(const Config& config, const ProcessGrid& grid, Backend& backend)
    : config_(config),
      grid_(grid),
      passes_(config_, grid, backend, form_of(config_)),
      batch_(batch_layout(config_), micro_batches_together(grid.shape()), *backend.device),
      scores_(grid, *backend.device, batch_layout(config_).sizes, config_.model.task_classes(),
              micro_batches_together(grid.shape())) {}

LabelResult LabelScorer::score(Samples& samples, bool with_probabilities,
                               const std::function<void(std::int64_t done)>& progress) {
  const auto count = static_cast<std::int64_t>(samples.samples());
  const std::int64_t batch = config_.train.global_batch_size, steps = (count + batch - 1) / batch;
  const BatchPlan plan = [=](std::int64_t step) {
    if (step >= steps) return GlobalBatch{};
    return GlobalBatch{.first_sample = static_cast<std::uint64_t>(step * batch),
                       .samples = batch,
                       .padding = std::max<std::int64_t>(0, (step + 1) * batch - count)};
  };
  DeviceBatches batches(config_, grid_, batch_, samples, plan, count % batch != 0,
                        [this](const BatchField& field) { return passes_.reads(field); });
  scores_.begin();
  double loss = 0;
  NumberedRows rows;
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::span<const MicroBatch> micro_batches = batches.next();
    passes_.play(micro_batches, scores_.results(micro_batches.size()));
    const auto keep = [&](std::int64_t sample, std::span<const float> logits) {
      if (step * batch + sample >= count) return;
      for (const float logit : logits) loss += logit - logit;  // not a number unless it is finite
      rows.emplace_back(step * batch + sample, softmax(logits));
    };
    scores_.add(micro_batches, with_probabilities ? TakeLogits(keep) : nullptr);
    if (grid_.last_stage() && grid_.at().tensor == 0) loss += passes_.loss_sum();
    batch_.mark_read();
    if (progress) progress(std::min(count, (step + 1) * batch));
  }
  grid_.world().all_reduce_values(std::span(&loss, 1), kScores);
  verify(std::isfinite(loss), ErrorKind::numerics,
         "the model's loss is not a finite number: its training has diverged, or numbers are too large for fp16; "
         "evaluate an older checkpoint, or in fp32 or bf16");
  LabelResult result{scores_.sum(), 0, {}};
  result.loss = loss / static_cast<double>(std::max<std::int64_t>(1, result.counts.all_examples()));
  if (with_probabilities) result.probabilities = in_order(grid_.world(), rows, count);
  return result;
}

MemoryUse LabelScorer::used() const {
  MemoryUse used = passes_.used();
  used.batch = batch_.bytes() + scores_.bytes();
  return used;
}

}  // namespace megatron
