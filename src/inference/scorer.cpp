#include "inference/scorer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/counting_communicator.h"
#include "config/resolve.h"
#include "inference/inference_model.h"
#include "inference/load_weights.h"
#include "train/compute.h"

namespace megatron {

namespace {

// Of a pass: enough that the pipeline's bubble is small.
std::int64_t micro_batches_together(const GridShape& shape) {
  return shape.pipeline == 1 ? 4 : 16 * shape.pipeline;
}

// Of one sequence each in its columns, without documents.
BatchLayout scored_batch(const Config& config, std::int64_t longest) {
  BatchLayout layout = batch_layout(config).without(&Rows::weights);
  layout.sizes.rows = {longest};
  return layout;
}

// After the batch's: f32 [micro-batches, results, cells].
constexpr std::int64_t kResults = 3;
std::size_t result_bytes(const BatchSizes& sizes, std::int64_t micro_batches) {
  return static_cast<std::size_t>(micro_batches * kResults * sizes.rows[0] * sizes.samples) * sizeof(float);
}

PassSettings settings_of(const Config& config, Tensor loss_sums, std::span<const TargetResults> results) {
  return {.training = false, .activation_type = config.precision.dtype(), .loss_sums = loss_sums, .results = results};
}

std::vector<Action> actions_of(const ProcessGrid& grid, std::int64_t micro_batches) {
  return forward_only(grid.at().pipeline, grid.shape().pipeline, static_cast<int>(micro_batches));
}

Tensor allocate_losses(const Config& config, Arena& scratch) {
  return scratch.allocate("loss sums", {static_cast<std::int64_t>(family_of(config.model).loss_terms(config).size())},
                          DType::f64);
}

struct ScoringPlan {
  MemoryUse use;
  ExecutorMemory passes;
  std::vector<StagingPlan> staging;  // of each of the grid's groups
};

ScoringPlan play(const Config& config, const GridShape& shape, const GridCoordinates& at, std::int64_t longest,
                 TransportKind kind) {
  CountingCommunicator world(rank_of(at, shape), shape.ranks());
  CountingCommunicator transport(rank_of(at, shape), shape.ranks(), "world", kind == TransportKind::staged);
  const ProcessGrid grid(world, shape, &transport);
  const TensorRegion region(grid, false);
  ParameterStore store;
  const Stages chunks = make_stages(config, grid, region, store);
  store.allocate_sizing(config.precision.dtype());

  const BatchLayout layout = scored_batch(config, longest);
  const std::int64_t count = micro_batches_together(shape);
  Arena scratch("scratch"), batch("batch");
  const MicroBatch micro_batch = view_batch(layout, layout.sizes, [&](const BatchField& field) {
    return batch.allocate(field.name, shape_of(field, layout.sizes), field.type).data();
  });
  const Tensor result = batch.allocate("results", {longest * layout.sizes.samples}, DType::f32);
  const std::vector<MicroBatch> micro_batches(static_cast<std::size_t>(count), micro_batch);
  const std::vector<TargetResults> results(micro_batches.size(), {result, result, result});

  ScoringPlan plan;
  const Tensor loss_sums = allocate_losses(config, scratch);
  const std::vector<Action> actions = actions_of(grid, count);
  const PipelineExecutor::Lists lists = {&actions};
  PipelineExecutor executor({chunks.front().get()}, grid, region, lists);
  const std::unique_ptr<CountingOps> ops = make_counting_ops(config.run);
  Timers timers;
  executor.run(actions, micro_batches, settings_of(config, loss_sums, results), *ops, scratch, timers);
  plan.passes = executor.memory_for(lists);
  plan.use.weights =
      static_cast<std::size_t>(store.flat_elements()) * size_of(config.precision.dtype()) + store.constant_bytes();
  plan.use.activations = ExecutorMemory::sum(plan.passes.slots);
  plan.use.batch = layout.bytes(count) + result_bytes(layout.sizes, count);
  plan.use.scratch = scratch.high_water();
  plan.use.kernels = ops->workspace_bytes();
  std::size_t staging = 0;
  for (Communicator* group : grid.groups()) {
    plan.staging.push_back(kind != TransportKind::nccl ? group->staging_plan() : StagingPlan{});
    staging += plan.staging.back().bytes();
  }
  (on_host_memory(config.run) ? plan.use.communication : plan.use.host) += staging;
  return plan;
}

}  // namespace

Config config_for_scoring(const CheckpointReader& checkpoint, const ScoringLayout& layout) {
  Config config = config_for_inference(checkpoint);
  const std::int64_t model_ranks = layout.tensor * layout.pipeline;
  verify(layout.ranks % model_ranks == 0, ErrorKind::configuration,
         "{} ranks are no multiple of tensor {} × pipeline {} = {}", layout.ranks, layout.tensor, layout.pipeline,
         model_ranks);
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.data = 0;
  config.train = {};
  config.train.steps = 1;
  config.train.micro_batch_size = layout.micro_batch_size;
  config.train.global_batch_size = layout.micro_batch_size * (layout.ranks / model_ranks);
  config.learning_rate = {};
  config.optimizer = {};
  config.recompute = {.mode = "full"};  // a block keeps its input alone
  config.loss = {};
  config.data.reset_attention_mask = config.data.reset_position_ids = config.data.eod_mask_loss = false;
  if (layout.precision != "checkpoint") config.precision.compute = layout.precision;
  config.run = {};
  resolve(config, layout.ranks, nullptr);
  return config;
}

MemoryUse plan_scoring(const Config& config, const GridShape& shape, const GridCoordinates& at, std::int64_t longest,
                       TransportKind kind) {
  return play(config, shape, at, longest, kind).use;
}

// What this rank's micro-batches of a pass are made of.
struct Scorer::Pass {
  std::vector<std::vector<std::size_t>> columns;  // by micro-batch: the sequences of its first columns
  std::vector<MicroBatch> micro_batches;
  std::vector<TargetResults> results;
};

Scorer::~Scorer() = default;

Scorer::Scorer(const Config& config, const ProcessGrid& grid, Backend& backend, std::int64_t longest)
    : config_(config),
      grid_(grid),
      backend_(backend),
      micro_batches_(micro_batches_together(grid.shape())),
      region_(grid, false),
      chunks_(make_stages(config_, grid, region_, store_)),
      scratch_("scratch") {
  const ScoringPlan plan =
      play(config_, grid.shape(), grid.at(), longest, transport_of(*backend.device, grid.tensor()));
  Device& device = *backend.device;
  store_.allocate_values(device, config_.precision.dtype());
  executor_ = std::make_unique<PipelineExecutor>(PipelineExecutor::Chunks{chunks_.front().get()}, grid, region_,
                                                 plan.passes, device);
  batch_ = BatchBuffer(scored_batch(config_, longest), micro_batches_, device);
  batch_.write_row_numbers(
      [&](void* to, const void* values, std::size_t bytes) { device.copy_to_device(to, values, bytes); });
  result_memory_ = Buffer(device, result_bytes(batch_.layout().sizes, micro_batches_));
  scratch_memory_ = Buffer(device, plan.use.scratch);
  scratch_ = Arena("scratch", scratch_memory_);
  loss_sums_ = allocate_losses(config_, scratch_);
  for (std::size_t i = 0; i < plan.staging.size(); ++i) grid.groups()[i]->reserve_staging(plan.staging[i]);
  backend.ops->reserve(plan.use.kernels);
}

void Scorer::load(const CheckpointReader& checkpoint) {
  load_weights(grid_.world(), checkpoint, store_, backend_);
}

// Micro-batch k of data rank r (of d, micro-batch size b) has the places k·b·d + r·b + (0 .. b-1) of `order`, as in
// training. Each is as long as its longest sequence; what follows the end of a sequence is token 0, which no row in
// front of it sees.
void Scorer::place(std::span<const ScoredSequence> sequences, std::span<const std::size_t> order, Pass& pass) {
  const std::int64_t b = config_.train.micro_batch_size, d = grid_.data().size();
  const auto count = static_cast<std::int64_t>(order.size());
  pass = {};
  for (std::int64_t k = 0; k * b * d < count; ++k) {
    std::vector<std::size_t>& columns = pass.columns.emplace_back();
    const std::int64_t first = std::min(count, (k * d + grid_.data().rank()) * b);
    for (std::int64_t i = first; i < std::min(count, first + b); ++i) {
      columns.push_back(order[static_cast<std::size_t>(i)]);
    }
    upload(sequences, static_cast<std::size_t>(k), pass);
  }
}

void Scorer::upload(std::span<const ScoredSequence> sequences, std::size_t k, Pass& pass) {
  const std::vector<std::size_t>& columns = pass.columns[k];
  BatchSizes sizes{.rows = {1}, .samples = config_.train.micro_batch_size};
  for (const std::size_t number : columns) {
    sizes.rows[0] = std::max(sizes.rows[0], static_cast<std::int64_t>(sequences[number].tokens.size()) - 1);
  }
  const BatchLayout& layout = batch_.layout();
  internal_check(sizes.rows[0] <= layout.sizes.rows[0], "a sequence that is longer than the scorer's longest");
  const auto b = static_cast<std::size_t>(sizes.samples), cells = static_cast<std::size_t>(sizes.rows[0]) * b;
  std::vector<std::int32_t> tokens(cells), targets(cells);
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const std::span<const std::int32_t> all = sequences[columns[column]].tokens;
    for (std::size_t row = 0; row + 1 < all.size(); ++row) {
      tokens[row * b + column] = all[row];
      targets[row * b + column] = all[row + 1];
    }
  }
  const auto copy = [&](ConstTensor Rows::*view, const std::vector<std::int32_t>& values) {
    const BatchField* const field = layout.find(view);
    internal_check(field != nullptr, "scores of a model without tokens or targets");
    backend_.device->copy_to_device(batch_.at(*field, k), values.data(), cells * sizeof(std::int32_t));
  };
  copy(&Rows::tokens, tokens);
  copy(&Rows::targets, targets);
  pass.micro_batches.push_back(batch_.view(layout, sizes, k));
  const auto most = static_cast<std::size_t>(layout.sizes.rows[0]) * b;
  const auto result = [&](std::size_t i) {
    return result_memory_.tensor({static_cast<std::int64_t>(cells)}, DType::f32,
                                 (k * kResults + i) * most * sizeof(float));
  };
  pass.results.push_back({result(0), result(1), result(2)});
}

void Scorer::read(std::span<const ScoredSequence> sequences, std::span<const std::int64_t> first_targets,
                  const Pass& pass, std::span<double> scores) const {
  const auto b = static_cast<std::size_t>(config_.train.micro_batch_size);
  std::vector<float> losses, maximum, target_logit;
  const auto fetch = [&](const Tensor& from, std::vector<float>& to) {
    to.resize(static_cast<std::size_t>(from.elements()));
    backend_.device->copy_to_host(to.data(), from.data(), from.bytes());
  };
  for (std::size_t k = 0; k < pass.columns.size(); ++k) {
    fetch(pass.results[k].losses, losses);
    fetch(pass.results[k].maximum, maximum);
    fetch(pass.results[k].target_logit, target_logit);
    for (std::size_t column = 0; column < pass.columns[k].size(); ++column) {
      const std::size_t number = pass.columns[k][column];
      const ScoredSequence& sequence = sequences[number];
      for (std::int64_t i = 0; i < sequence.targets(); ++i) {
        const std::size_t cell = static_cast<std::size_t>(sequence.first_scored - 1 + i) * b + column;
        const auto at = 2 * static_cast<std::size_t>(first_targets[number] + i);
        scores[at] = -losses[cell];
        scores[at + 1] = target_logit[cell] == maximum[cell] ? 1 : 0;
      }
    }
  }
}

std::vector<TargetScore> Scorer::score(std::span<const ScoredSequence> sequences,
                                       const std::function<void(std::int64_t done)>& progress) {
  std::vector<std::int64_t> first_targets;
  std::int64_t targets = 0;
  for (const ScoredSequence& sequence : sequences) {
    first_targets.push_back(targets);
    targets += sequence.targets();
  }
  // Sequences of a length go together, the longest first.
  std::vector<std::size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sequences[a].tokens.size() > sequences[b].tokens.size();
  });

  std::vector<double> scores(2 * static_cast<std::size_t>(targets));
  const auto together = static_cast<std::size_t>(micro_batches_ * config_.train.micro_batch_size * grid_.data().size());
  Pass pass;
  Timers timers;
  for (std::size_t first = 0; first < order.size(); first += together) {
    const std::size_t count = std::min(together, order.size() - first);
    place(sequences, std::span(order).subspan(first, count), pass);
    backend_.ops->fill(loss_sums_, 0);
    executor_->run(actions_of(grid_, static_cast<std::int64_t>(pass.micro_batches.size())), pass.micro_batches,
                   settings_of(config_, loss_sums_, pass.results), *backend_.ops, scratch_, timers);
    // One rank that has them counts; all have them after the sum below, since x + 0 is x.
    if (grid_.last_stage() && grid_.at().tensor == 0) read(sequences, first_targets, pass, scores);
    if (progress) progress(static_cast<std::int64_t>(first + count));
  }
  constexpr std::size_t kTogether = 2048;
  for (std::size_t first = 0; first < scores.size(); first += kTogether) {
    grid_.world().all_reduce_values(std::span(scores).subspan(first, std::min(kTogether, scores.size() - first)));
  }
  std::vector<TargetScore> result;
  for (std::size_t i = 0; i < scores.size(); i += 2) {
    verify(std::isfinite(scores[i]), ErrorKind::numerics,
           "the model's loss is not a finite number for all tokens: its training has diverged, or numbers are too "
           "large for fp16; evaluate an older checkpoint, or in fp32 or bf16");
    result.push_back({scores[i], scores[i + 1] != 0});
  }
  return result;
}

MemoryUse Scorer::used() const {
  MemoryUse used{.weights = store_.values().bytes() + store_.constant_bytes(),
                 .activations = ExecutorMemory::sum(executor_->used().slots),
                 .scratch = scratch_.high_water(),
                 .kernels = backend_.ops->workspace_bytes(),
                 .batch = batch_.bytes() + result_memory_.bytes()};
  std::size_t& staging = backend_.device->is_host_memory() ? used.communication : used.host;
  for (const Communicator* group : grid_.groups()) staging += group->staging_bytes();
  return used;
}

}  // namespace megatron
