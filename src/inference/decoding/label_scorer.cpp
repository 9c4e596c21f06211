#include "inference/decoding/label_scorer.h"

#include <cmath>

#include "config/rules/resolve.h"
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

LabelResult LabelScorer::score(Samples& samples, const std::function<void(std::int64_t done)>& progress) {
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
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::span<const MicroBatch> micro_batches = batches.next();
    passes_.play(micro_batches, scores_.results(micro_batches.size()));
    scores_.add(micro_batches);
    if (grid_.last_stage() && grid_.at().tensor == 0) loss += passes_.loss_sum();
    batch_.mark_read();
    if (progress) progress(std::min(count, (step + 1) * batch));
  }
  grid_.world().all_reduce_values(std::span(&loss, 1), kScores);
  verify(std::isfinite(loss), ErrorKind::numerics,
         "the model's loss is not a finite number: its training has diverged, or numbers are too large for fp16; "
         "evaluate an older checkpoint, or in fp32 or bf16");
  LabelResult result{scores_.sum(), 0};
  result.loss = loss / static_cast<double>(result.counts.all_examples());
  return result;
}

MemoryUse LabelScorer::used() const {
  MemoryUse used = passes_.used();
  used.batch = batch_.bytes() + scores_.bytes();
  return used;
}

}  // namespace megatron
