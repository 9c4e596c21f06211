#include "inference/decoding/scorer.h"

#include <cmath>

#include "training/datasets/family_samples.h"

namespace megatron {

namespace {

// Passes over one sequence in each column, without documents.
PassForm form_of(const Config& config, std::int64_t longest) {
  PassForm form{batch_layout(config).without(&Rows::weights), [](const BatchLayout& batch, Arena& memory) {
                  const std::int64_t targets = batch.sizes.rows[0] * batch.sizes.samples;
                  const Tensor result = memory.allocate("results", {targets}, DType::f32);
                  return TargetResults{.losses = result, .maximum = result, .target_logit = result};
                }};
  form.batch.sizes.rows = {longest};
  return form;
}

}  // namespace

Config config_for_scoring(const CheckpointReader& checkpoint, const ScoringLayout& layout) {
  Config config = config_for_passes(checkpoint, layout);
  verify(samples_of_family(config.model).of_tokens != nullptr, ErrorKind::configuration,
         "{}: a model of model.family = \"{}\" does not predict each token of a text from those before it, so that it "
         "scores none; megatron_checkpoint export makes a model of it that other programs read",
         checkpoint.path(), config.model.family);
  return config;
}

MemoryUse plan_scoring(const Config& config, const GridShape& shape, const GridCoordinates& at, std::int64_t longest,
                       TransportKind kind) {
  const PassForm form = form_of(config, longest);
  MemoryUse use = ForwardPasses::plan(config, shape, at, form, kind);
  use.batch += ScoringBatches::result_bytes(form.batch.sizes, micro_batches_together(shape));
  return use;
}

Scorer::Scorer(const Config& config, const ProcessGrid& grid, Backend& backend, std::int64_t longest)
    : config_(config),
      passes_(config_, grid, backend, form_of(config_, longest)),
      batch_(form_of(config_, longest).batch, micro_batches_together(grid.shape()), *backend.device) {
  Device& device = *backend.device;
  batch_.write_row_numbers(
      [&](void* to, const void* values, std::size_t bytes) { device.copy_to_device(to, values, bytes); });
  scores_.emplace(grid, device,
                  ScoringBatches{.buffer = &batch_, .micro_batches = micro_batches_together(grid.shape())});
}

std::vector<TargetScore> Scorer::score(std::span<const ScoredSequence> sequences,
                                       const std::function<void(std::int64_t done)>& progress) {
  const auto play = [&](std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results) {
    passes_.play(micro_batches, results);
  };
  const std::optional<std::vector<TargetScore>> scores = scores_->score(sequences, play, [&](std::int64_t done) {
    if (progress && done > 0) progress(done);
    return true;
  });
  if (progress) progress(static_cast<std::int64_t>(sequences.size()));
  for (const TargetScore& score : *scores) {
    verify(std::isfinite(score.log_probability), ErrorKind::numerics,
           "the model's loss is not a finite number for all tokens: its training has diverged, or numbers are too "
           "large for fp16; evaluate an older checkpoint, or in fp32 or bf16");
  }
  return *scores;
}

MemoryUse Scorer::used() const {
  MemoryUse used = passes_.used();
  used.batch = batch_.bytes() + scores_->bytes();
  return used;
}

}  // namespace megatron
