#include "inference/decoding/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/ops/counting_ops.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/meanings.h"
#include "inference/decoding/load_weights.h"
#include "inference/decoding/pass_integers.h"

namespace megatron {

namespace {
constexpr int kChannel = 20;  // for activations between stages
}  // namespace

/// The part of a model that this rank holds.
struct Decoder::Model {
  Model(const Config& config, const ProcessGrid& grid)
      : region(grid, false), stages(make_stages(config, grid, region, store)) {
    internal_check(stages.size() == 1, "decoding with interleaved stages", stages.size());
  }
  const Stage& stage() const { return *stages.front(); }

  TensorRegion region;
  ParameterStore store;
  Stages stages;
};

struct Decoder::Group {
  Buffer cache_memory, output_memory;
  KeyValueCache cache;
  std::vector<std::int64_t> encoded;  // by sample: tokens that its encoder has read
  std::vector<Pending> sent;          // pending sends from output_memory

  /// The most tokens that an encoder has read of one of the pass's samples; a pass over the encoder sets them.
  std::int64_t encoded_rows(const DecoderPass& pass, const PassIntegers& integers) {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < pass.tokens.size(); ++i) {
      std::int64_t& rows = encoded[static_cast<std::size_t>(pass.first_sample) + i];
      if (pass.stream == Stream::encoder) rows = integers.lengths[i];
      internal_check(!cache.memory_lengths || rows > 0, "tokens of a sample whose text no encoder has read", rows);
      most = std::max(most, rows);
    }
    return most;
  }

  void wait() {
    for (Pending& pending : sent) pending.wait();
    sent.clear();
  }
};

namespace {

/// Memory for the links of the pass's stream.
StageData allocate_links(std::span<const Link> links, Arena& arena, const PassExtents& extents, DType type) {
  StageData data;
  for (const Link& link : links) {
    if (link.stream != extents.stream) continue;
    data.push_back(arena.allocate("link", {extents.rows, extents.samples, link.width}, type));
  }
  return data;
}

/// A stage, what it computes with, and where it works.
struct Worker {
  const TensorRegion& region;
  const Stage& stage;
  DType type;
  std::int64_t padded_vocab;
  Ops& ops;
  Arena &saved, &scratch;

  /// Returns the logits in f32, of the whole padded vocabulary in parts [t, wanted, V/t]; nothing where none are
  /// wanted, the stage is not the last, or the pass is over the encoder.
  Tensor infer(Stream stream, const PassTensors& integers, const CachePass& cache, const StageData& in,
               const StageData& out) const;
  void reorder(const KeyValueCache& cache, ConstTensor from) const;
};

Tensor Worker::infer(Stream stream, const PassTensors& integers, const CachePass& cache, const StageData& in,
                     const StageData& out) const {
  MicroBatch batch;
  Rows& rows = batch.rows(stream);
  rows.tokens = integers.tokens;
  rows.position_ids = integers.position_ids;
  rows.sequence = integers.tokens.dim(0);
  if (stream == Stream::encoder) rows.lengths = integers.lengths;
  batch.samples = integers.tokens.dim(1);
  const PassSettings pass{.training = false, .activation_type = type, .experts_take_all = true};
  Context context{.ops = ops,
                  .region = region,
                  .saved = &saved,
                  .scratch = scratch,
                  .micro_batch = batch,
                  .pass = pass,
                  .cache = &cache};
  if (stream == Stream::encoder) {
    stage.encode(context, in, out);
    return {};
  }
  const bool wanted = stage.last() && integers.wanted;
  const std::int64_t t = region.size(), n = wanted ? integers.wanted.dim(0) : 0;
  Tensor part;
  if (wanted) part = saved.allocate("logits", {n, padded_vocab / t}, type);
  stage.infer(context, in, out, integers.wanted, part);
  if (!wanted) return {};
  Tensor all = part.view({1, n, padded_vocab / t});
  if (t > 1) {
    all = saved.allocate("gathered logits", {t, n, padded_vocab / t}, type);
    region.communicator().all_gather(part, all, kLogitParts);
  }
  if (type == DType::f32) return all;
  const Tensor wide = saved.allocate("logits in f32", all.shape(), DType::f32);
  ops.copy(all, wide);
  return wide;
}

void Worker::reorder(const KeyValueCache& cache, ConstTensor from) const {
  for (const KeyValueCache::Layer& layer : cache.layers) {
    for (const Tensor& rows : {layer.keys, layer.values}) {
      const ArenaScope scope(saved);
      const Tensor memory = rows.swapped(1, 2).swapped(0, 2);  // as it lies: [b, groups, capacity, d]
      const Tensor samples = memory.view({memory.dim(0), memory.elements() / memory.dim(0)});
      const Tensor chosen = saved.allocate("reordered cache", samples.shape(), samples.dtype());
      ops.embedding_forward({.ids = from, .weight = samples, .y = chosen});
      ops.copy(chosen, samples);
    }
  }
}

/// Bytes of each of a decoder's allocations on one rank.
struct Needs {
  std::size_t weights = 0, cache = 0, integers = 0, saved = 0, scratch = 0, workspace = 0, input = 0, output = 0;
  std::vector<StagingPlan> staging;  // for each of the grid's groups

  DecoderMemory memory(std::int64_t count, TransportKind transport) const {
    const auto groups = static_cast<std::size_t>(count);
    DecoderMemory memory{.weights = weights,
                         .cache = groups * cache,
                         .activations = integers + saved + scratch + input + groups * output,
                         .workspace = workspace};
    for (const StagingPlan& plan : staging) {
      (transport == TransportKind::host ? memory.communication : memory.host) += plan.bytes();
    }
    return memory;
  }
};

/// The passes that need the most. Operations on a few rows may work in more memory than those on many.
std::vector<PassExtents> largest_passes(const DecoderSizes& sizes) {
  constexpr std::int64_t kFew = 32;
  std::vector<PassExtents> passes;
  const auto add = [&](const PassExtents& largest) {
    if (largest.rows == 0) return;
    passes.push_back(largest);
    for (std::int64_t rows = 1; rows <= std::min(kFew, largest.rows); ++rows) {
      const std::int64_t samples = std::min(largest.samples, std::max<std::int64_t>(1, kFew / rows));
      passes.push_back({largest.stream, rows, samples, std::min({kFew, rows * samples, largest.wanted})});
    }
  };
  add({Stream::main, sizes.first_rows, sizes.samples, sizes.logits_rows});
  add({Stream::encoder, sizes.encoder_rows, sizes.encoder_samples, 0});
  return passes;
}

CacheSizes cache_sizes(const DecoderSizes& sizes) {
  return {.capacity = sizes.capacity, .encoder_rows = sizes.encoder_rows, .samples = sizes.samples};
}

/// Memory that the groups hold for the passes that were played. The ranks of a model also ask each other whether to
/// stop: one number, on the host. NCCL's own memory is not counted.
std::vector<StagingPlan> plan_staging(const ProcessGrid& grid, TransportKind transport) {
  std::vector<StagingPlan> plans;
  for (const Communicator* group : grid.groups()) {
    plans.push_back(transport == TransportKind::nccl ? StagingPlan{} : group->staging_plan());
    if (transport == TransportKind::nccl || group != &grid.model()) continue;
    CountingCommunicator host(group->rank(), group->size());
    Arena numbers("numbers");
    host.all_reduce(numbers.allocate("wish to stop", {1}, DType::f64), kDecision);
    plans.back().reductions = host.staging_plan().reductions;
  }
  return plans;
}

/// Plays the decoder of the rank at `at` without memory.
Needs play(const Config& config, const GridShape& shape, const GridCoordinates& at, DType type,
           const DecoderSizes& sizes, TransportKind transport) {
  CountingCommunicator world(rank_of(at, shape), shape.ranks());
  CountingCommunicator tensors(rank_of(at, shape), shape.ranks(), "world", transport == TransportKind::staged);
  const ProcessGrid grid(world, shape, &tensors);
  const TensorRegion region(grid, false);
  ParameterStore store;
  const Stages stages = make_stages(config, grid, region, store);
  store.allocate_sizing(type);
  const Stage& stage = *stages.front();
  const std::unique_ptr<CountingOps> ops = make_counting_ops(config.run);
  Arena cache_arena("cache"), integers("integers"), saved("saved"), scratch("scratch"), input("input"),
      output("output");
  const KeyValueCache cache = stage.make_cache(cache_arena, cache_sizes(sizes), type);
  const Worker worker{region, stage, type, config.model.padded_vocab(), *ops, saved, scratch};
  for (const PassExtents& extents : largest_passes(sizes)) {
    for (Arena* arena : {&integers, &saved, &input, &output}) arena->reset();
    const PassTensors all = allocate_pass(integers, extents);
    const StageData in = allocate_links(stage.receives(), input, extents, type);
    const StageData out = allocate_links(stage.sends(), output, extents, type);
    for (const Tensor& tensor : in)
      grid.pipeline().start_receive(tensor, at.pipeline - 1, kChannel, kStageOutput).wait();
    worker.infer(extents.stream, all,
                 {.cache = cache,
                  .first_sample = 0,
                  .offsets = all.offsets,
                  .rows = sizes.capacity,
                  .memory_rows = sizes.encoder_rows},
                 in, out);
    for (const Tensor& tensor : out) grid.pipeline().start_send(tensor, at.pipeline + 1, kChannel, kStageOutput).wait();
  }
  if (sizes.reorders) {
    integers.reset();
    saved.reset();
    worker.reorder(cache, integers.allocate("beams", {sizes.samples}, DType::i32));
  }
  return {.weights = static_cast<std::size_t>(store.flat_elements()) * size_of(type) + store.constant_bytes(),
          .cache = cache_arena.high_water(),
          .integers = integers.high_water(),
          .saved = saved.high_water(),
          .scratch = scratch.high_water(),
          .workspace = ops->workspace_bytes(),
          .input = input.high_water(),
          .output = output.high_water(),
          .staging = plan_staging(grid, transport)};
}

}  // namespace

DecoderMemory plan_decoder(const Config& config, const GridShape& shape, const GridCoordinates& at, DType type,
                           const DecoderSizes& sizes, TransportKind transport) {
  return play(config, shape, at, type, sizes, transport).memory(sizes.groups, transport);
}

DecoderMemory plan_decoder(const Config& config, const GridShape& shape, const GridCoordinates& at, DType type,
                           const DecoderSizes& sizes) {
  return plan_decoder(config, shape, at, type, sizes, planned_transport(config.run));
}

Decoder::Decoder(Config config, const GridShape& shape, Communicator& world, Compute compute, DType type,
                 const DecoderSizes& sizes)
    : config_(std::move(config)),
      compute_(std::move(compute)),
      grid_(world, shape, compute_.transport.get()),
      model_(std::make_unique<Model>(config_, grid_)),
      type_(type),
      sizes_(sizes) {
  const Needs needs = play(config_, shape, grid_.at(), type_, sizes_, transport_of(device(), grid_.tensor()));
  Device& own = device();
  const auto allocate = [&](std::size_t bytes) { return bytes > 0 ? Buffer(own, bytes) : Buffer(); };
  model_->store.allocate_values(own, type_);
  integer_memory_ = allocate(needs.integers);
  saved_memory_ = allocate(needs.saved);
  scratch_memory_ = allocate(needs.scratch);
  input_memory_ = allocate(needs.input);
  compute_.backend.ops->reserve(needs.workspace);
  for (std::size_t i = 0; i < needs.staging.size(); ++i) grid_.groups()[i]->reserve_staging(needs.staging[i]);
  for (std::int64_t i = 0; i < sizes_.groups; ++i) {
    auto group = std::make_unique<Group>();
    group->cache_memory = allocate(needs.cache);
    group->output_memory = allocate(needs.output);
    Arena arena("cache", group->cache_memory);
    group->cache = model_->stage().make_cache(arena, cache_sizes(sizes_), type_);
    group->encoded.resize(static_cast<std::size_t>(sizes_.samples));
    groups_.push_back(std::move(group));
  }
}

Decoder::~Decoder() {
  for (const auto& group : groups_) group->wait();
}

void Decoder::load(Communicator& world, const CheckpointReader& checkpoint) {
  load_weights(world, checkpoint, model_->store, compute_.backend);
}

void Decoder::initialize(std::uint64_t seed) {
  const ParameterStore& store = model_->store;
  Ops& ops = *compute_.backend.ops;
  if (type_ == DType::f32) return store.draw_initial(ops, seed, store.values());
  const Buffer memory(device(), static_cast<std::size_t>(store.flat_elements()) * sizeof(float));
  const Tensor numbers = memory.tensor({store.flat_elements()}, DType::f32);
  store.draw_initial(ops, seed, numbers);
  ops.copy(numbers, store.values());
  device().synchronize();
}

int Decoder::sampling_rank() const {
  return (grid_.shape().pipeline - 1) * grid_.shape().tensor;
}

DecoderMemory Decoder::memory() const {
  DecoderMemory memory;
  memory.weights = model_->store.values().bytes() + model_->store.constant_bytes();
  memory.activations =
      integer_memory_.bytes() + saved_memory_.bytes() + scratch_memory_.bytes() + input_memory_.bytes();
  for (const auto& group : groups_) {
    memory.cache += group->cache_memory.bytes();
    memory.activations += group->output_memory.bytes();
  }
  memory.workspace = compute_.backend.ops->workspace_bytes();
  std::size_t& staging = device().is_host_memory() ? memory.communication : memory.host;
  for (const Communicator* group : grid_.groups()) staging += group->staging_bytes();
  return memory;
}

void Decoder::run(std::int64_t index, const DecoderPass& pass, std::vector<float>& logits) {
  Group& group = *groups_[static_cast<std::size_t>(index)];
  const Stage& stage = model_->stage();
  const PassIntegers host(pass, sizes_);
  group.wait();
  Arena integers("integers", integer_memory_), saved("saved", saved_memory_), scratch("scratch", scratch_memory_),
      input("input", input_memory_), output("output", group.output_memory);
  const PassTensors all = allocate_pass(integers, host.extents);
  const auto fill = [&](const Tensor& to, const std::vector<std::int32_t>& values) {
    if (!values.empty()) device().copy_to_device(to.data(), values.data(), values.size() * sizeof(std::int32_t));
  };
  fill(all.tokens, host.tokens);
  fill(all.position_ids, host.position_ids);
  fill(all.offsets, pass.offsets);
  if (pass.stream == Stream::encoder) fill(all.lengths, host.lengths);
  fill(all.wanted, host.wanted);
  const CachePass cache{.cache = group.cache,
                        .first_sample = pass.first_sample,
                        .offsets = all.offsets,
                        .rows = host.longest,
                        .memory_rows = group.encoded_rows(pass, host)};
  if (pass.stream == Stream::encoder && group.cache.memory_lengths) {
    fill(group.cache.memory_lengths.slice(0, pass.first_sample, host.extents.samples), host.lengths);
  }
  const StageData in = allocate_links(stage.receives(), input, host.extents, type_);
  const StageData out = allocate_links(stage.sends(), output, host.extents, type_);
  Communicator& pipeline = grid_.pipeline();
  for (const Tensor& tensor : in)
    pipeline.start_receive(tensor, grid_.at().pipeline - 1, kChannel, kStageOutput).wait();
  const Worker worker{model_->region,        stage, type_,  config_.model.padded_vocab(),
                      *compute_.backend.ops, saved, scratch};
  const Tensor result = worker.infer(pass.stream, all, cache, in, out);
  for (const Tensor& tensor : out) {
    group.sent.push_back(pipeline.start_send(tensor, grid_.at().pipeline + 1, kChannel, kStageOutput));
  }
  // The caller may wait for messages of the host next, which moves no staged tensor along.
  if (transport_of(device(), pipeline) == TransportKind::staged) group.wait();
  if (samples_here()) take_logits(result, logits);
}

void Decoder::take_logits(const Tensor& all, std::vector<float>& logits) {
  logits.clear();
  if (!all) return;
  const std::int64_t vocab = config_.model.vocab_size, parts = all.dim(0), n = all.dim(1), width = all.dim(2);
  logits.resize(static_cast<std::size_t>(n * vocab));
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t columns = std::min(width, vocab - part * width);
    for (std::int64_t row = 0; row < n && columns > 0; ++row) {
      device().copy_to_host(logits.data() + row * vocab + part * width, all.slice(0, part, 1).slice(1, row, 1).data(),
                            static_cast<std::size_t>(columns) * sizeof(float));
    }
  }
}

void Decoder::reorder(std::int64_t group, std::span<const std::int32_t> from) {
  internal_check(sizes_.reorders && static_cast<std::int64_t>(from.size()) == sizes_.samples, "beams to reorder",
                 from.size(), sizes_.samples);
  Arena integers("integers", integer_memory_), saved("saved", saved_memory_), scratch("scratch", scratch_memory_);
  const Tensor ids = integers.allocate("beams", {sizes_.samples}, DType::i32);
  device().copy_to_device(ids.data(), from.data(), from.size() * sizeof(std::int32_t));
  Worker{model_->region, model_->stage(), type_, config_.model.padded_vocab(), *compute_.backend.ops, saved, scratch}
      .reorder(groups_[static_cast<std::size_t>(group)]->cache, ids);
}

}  // namespace megatron
