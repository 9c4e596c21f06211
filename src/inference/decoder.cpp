#include "inference/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/counting_communicator.h"
#include "inference/load_weights.h"
#include "ops/counting_ops.h"

namespace megatron {

namespace {
constexpr int kChannel = 20;  // of activations between stages
}  // namespace

/// The part of a model that this rank holds.
struct Decoder::Model {
  Model(const Config& config, const ProcessGrid& grid)
      : region(grid, false), stages(make_stages(config, grid, region, store)) {
    internal_check(stages.size() == 1, "decoding with interleaved stages");
  }
  const Stage& stage() const { return *stages.front(); }

  TensorRegion region;
  ParameterStore store;
  Stages stages;
};

struct Decoder::Group {
  Buffer cache_memory, output_memory;
  KeyValueCache cache;
  std::vector<Pending> sent;  // of output_memory

  void wait() {
    for (Pending& pending : sent) pending.wait();
    sent.clear();
  }
};

namespace {

/// The extents of a pass.
struct Extents {
  std::int64_t rows = 1, samples = 1;
  std::int64_t wanted = 0;  ///< tokens with logits
};

/// What a pass reads besides the cache.
struct Integers {
  Tensor tokens, position_ids, offsets, wanted;
};

Integers allocate_integers(Arena& arena, const Extents& extents) {
  const auto make = [&](const char* what, Shape shape) { return arena.allocate(what, shape, DType::i32); };
  Integers integers;
  integers.tokens = make("tokens", {extents.rows, extents.samples});
  integers.position_ids = make("position ids", {extents.rows, extents.samples});
  integers.offsets = make("offsets", {extents.samples});
  if (extents.wanted > 0) integers.wanted = make("rows with logits", {extents.wanted});
  return integers;
}

StageData allocate_links(std::span<const Link> links, Arena& arena, const Extents& extents, DType type) {
  StageData data;
  for (const Link& link : links) {
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

  /// Returns the logits in f32, of the whole padded vocabulary in parts [t, wanted, V/t]; nothing where none are wanted
  /// or the stage is not the last.
  Tensor infer(const Integers& integers, const CachePass& cache, const StageData& in, const StageData& out) const;
  void reorder(const KeyValueCache& cache, ConstTensor from) const;
};

Tensor Worker::infer(const Integers& integers, const CachePass& cache, const StageData& in,
                     const StageData& out) const {
  MicroBatch batch;
  batch.main.tokens = integers.tokens;
  batch.main.position_ids = integers.position_ids;
  batch.main.sequence = integers.tokens.dim(0);
  batch.samples = integers.tokens.dim(1);
  Context context{.ops = ops,
                  .region = region,
                  .saved = saved,
                  .scratch = scratch,
                  .micro_batch = batch,
                  .activation_type = type,
                  .training = false,
                  .cache = &cache,
                  .experts_take_all = true};
  const bool wanted = stage.last() && integers.wanted;
  const std::int64_t t = region.size(), n = wanted ? integers.wanted.dim(0) : 0;
  Tensor part;
  if (wanted) part = saved.allocate("logits", {n, padded_vocab / t}, type);
  stage.infer(context, in, out, integers.wanted, part);
  if (!wanted) return {};
  Tensor all = part.view({1, n, padded_vocab / t});
  if (t > 1) {
    all = saved.allocate("gathered logits", {t, n, padded_vocab / t}, type);
    region.communicator().all_gather(part, all);
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
  std::vector<StagingPlan> staging;  // of each of the grid's groups

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
std::vector<Extents> largest_passes(const DecoderSizes& sizes) {
  constexpr std::int64_t kFew = 32;
  std::vector<Extents> passes = {{sizes.first_rows, sizes.samples, sizes.logits_rows}};
  for (std::int64_t rows = 1; rows <= std::min(kFew, sizes.first_rows); ++rows) {
    const std::int64_t samples = std::min(sizes.samples, std::max<std::int64_t>(1, kFew / rows));
    passes.push_back({rows, samples, std::min({kFew, rows * samples, sizes.logits_rows})});
  }
  return passes;
}

/// What the groups hold for the passes that were played. The ranks of a model also ask each other whether to stop: one
/// number, on the host. NCCL's memory is its own affair.
std::vector<StagingPlan> plan_staging(const ProcessGrid& grid, TransportKind transport) {
  std::vector<StagingPlan> plans;
  for (const Communicator* group : grid.groups()) {
    plans.push_back(transport == TransportKind::nccl ? StagingPlan{} : group->staging_plan());
    if (transport == TransportKind::nccl || group != &grid.model()) continue;
    CountingCommunicator host(group->rank(), group->size());
    Arena numbers("numbers");
    host.all_reduce(numbers.allocate("wish to stop", {1}, DType::f64));
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
  const KeyValueCache cache = stage.make_cache(cache_arena, sizes.capacity, sizes.samples, type);
  const Worker worker{region, stage, type, config.model.padded_vocab(), *ops, saved, scratch};
  for (const Extents& extents : largest_passes(sizes)) {
    for (Arena* arena : {&integers, &saved, &input, &output}) arena->reset();
    const Integers all = allocate_integers(integers, extents);
    const StageData in = allocate_links(stage.receives(), input, extents, type);
    const StageData out = allocate_links(stage.sends(), output, extents, type);
    for (const Tensor& tensor : in) grid.pipeline().start_receive(tensor, at.pipeline - 1, kChannel).wait();
    worker.infer(all, {.cache = cache, .first_sample = 0, .offsets = all.offsets, .rows = sizes.capacity}, in, out);
    for (const Tensor& tensor : out) grid.pipeline().start_send(tensor, at.pipeline + 1, kChannel).wait();
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
    group->cache = model_->stage().make_cache(arena, sizes_.capacity, sizes_.samples, type_);
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

namespace {

/// The integers of a pass on the host, [s, b]. What is after a sample's last token is padding, which no token sees and
/// later ones write over.
struct HostIntegers {
  Extents extents;
  std::int64_t longest = 0;  ///< tokens of a sample with this pass, padding included where it has room
  std::vector<std::int32_t> tokens, position_ids, wanted;

  HostIntegers(const DecoderPass& pass, const DecoderSizes& sizes) {
    const std::size_t b = pass.tokens.size();
    internal_check(b > 0 && pass.offsets.size() == b && pass.wanted.size() == b,
                   "tokens, an offset and a number of logits for each sample of a pass");
    extents = {1, static_cast<std::int64_t>(b), 0};
    for (const auto& sample : pass.tokens) {
      extents.rows = std::max(extents.rows, static_cast<std::int64_t>(sample.size()));
    }
    tokens.assign(static_cast<std::size_t>(extents.rows) * b, 0);
    position_ids = tokens;
    for (std::size_t i = 0; i < b; ++i) add(pass, sizes, i);
    longest = std::min(longest, sizes.capacity);
    extents.wanted = static_cast<std::int64_t>(wanted.size());
    internal_check(extents.rows <= sizes.first_rows && extents.wanted <= sizes.logits_rows &&
                       pass.first_sample + extents.samples <= sizes.samples,
                   "a pass larger than the decoder was made for");
  }

 private:
  void add(const DecoderPass& pass, const DecoderSizes& sizes, std::size_t i) {
    const std::size_t b = pass.tokens.size(), count = pass.tokens[i].size();
    const std::int64_t offset = pass.offsets[i];
    internal_check(count > 0 && offset + static_cast<std::int64_t>(count) <= sizes.capacity,
                   "a pass without tokens, or past the end of the cache");
    for (std::int64_t row = 0; row < extents.rows; ++row) {
      const std::size_t at = static_cast<std::size_t>(row) * b + i;
      if (row < static_cast<std::int64_t>(count)) tokens[at] = pass.tokens[i][static_cast<std::size_t>(row)];
      position_ids[at] = static_cast<std::int32_t>(std::min(offset + row, sizes.capacity - 1));
    }
    for (std::size_t row = count - static_cast<std::size_t>(pass.wanted[i]); row < count; ++row) {
      wanted.push_back(static_cast<std::int32_t>(row * b + i));
    }
    longest = std::max(longest, offset + extents.rows);
  }
};

}  // namespace

void Decoder::run(std::int64_t index, const DecoderPass& pass, std::vector<float>& logits) {
  Group& group = *groups_[static_cast<std::size_t>(index)];
  const Stage& stage = model_->stage();
  const HostIntegers host(pass, sizes_);
  group.wait();
  Arena integers("integers", integer_memory_), saved("saved", saved_memory_), scratch("scratch", scratch_memory_),
      input("input", input_memory_), output("output", group.output_memory);
  const Integers all = allocate_integers(integers, host.extents);
  const auto fill = [&](const Tensor& to, const std::vector<std::int32_t>& values) {
    if (!values.empty()) device().copy_to_device(to.data(), values.data(), values.size() * sizeof(std::int32_t));
  };
  fill(all.tokens, host.tokens);
  fill(all.position_ids, host.position_ids);
  fill(all.offsets, pass.offsets);
  fill(all.wanted, host.wanted);
  const StageData in = allocate_links(stage.receives(), input, host.extents, type_);
  const StageData out = allocate_links(stage.sends(), output, host.extents, type_);
  Communicator& pipeline = grid_.pipeline();
  for (const Tensor& tensor : in) pipeline.start_receive(tensor, grid_.at().pipeline - 1, kChannel).wait();
  const Worker worker{model_->region,        stage, type_,  config_.model.padded_vocab(),
                      *compute_.backend.ops, saved, scratch};
  const CachePass cache{
      .cache = group.cache, .first_sample = pass.first_sample, .offsets = all.offsets, .rows = host.longest};
  const Tensor result = worker.infer(all, cache, in, out);
  for (const Tensor& tensor : out) {
    group.sent.push_back(pipeline.start_send(tensor, grid_.at().pipeline + 1, kChannel));
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
  internal_check(sizes_.reorders && static_cast<std::int64_t>(from.size()) == sizes_.samples, "beams to reorder");
  Arena integers("integers", integer_memory_), saved("saved", saved_memory_), scratch("scratch", scratch_memory_);
  const Tensor ids = integers.allocate("beams", {sizes_.samples}, DType::i32);
  device().copy_to_device(ids.data(), from.data(), from.size() * sizeof(std::int32_t));
  Worker{model_->region, model_->stage(), type_, config_.model.padded_vocab(), *compute_.backend.ops, saved, scratch}
      .reorder(groups_[static_cast<std::size_t>(group)]->cache, ids);
}

}  // namespace megatron
