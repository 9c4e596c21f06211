// BERT and T5 through training's own parts: checkpoints that any layout continues, and what a plan counts.
#include <mutex>

#include "backend/ops/backends.h"
#include "checkpoint/store/checkpoint.h"
#include "distributed/comm/thread_communicator.h"
#include "models/families/flops.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kBreak = 2, kBertSteps = 4;

struct BertLayout {
  int tensor = 1, data = 1, pipeline = 1;
  bool distributed = false;
  const char* schedule = "1f1b";
};

Config config_of(const BertLayout& layout, void (*variant)(ModelConfig&)) {
  Config config = tiny_config();
  variant(config.model);
  config.parallel.tensor = layout.tensor;
  config.parallel.data = layout.data;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.schedule = layout.schedule;
  config.parallel.virtual_stages = layout.schedule == std::string("interleaved") ? 2 : 1;
  config.parallel.sequence_parallel = layout.tensor > 1;
  config.optimizer.share = layout.distributed ? "state" : "none";
  return config;
}

struct TrainedBert {
  std::vector<double> losses;
  NamedValues parameters;
};

/// From the start, or from the checkpoint in `folder` if there is one, to `last`; then saves to `save_to`.
TrainedBert train(const Config& config, const std::string& folder, int last, const std::string& save_to) {
  TrainedBert trained;
  std::mutex mutex;
  run_as_threads(grid_shape(config).ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    int step = 1;
    std::vector<std::string> warnings;
    if (const auto checkpoint = open_newest_checkpoint(world, folder, warnings)) {
      checkpoint->read(world, replica.all_slices(true), *backend.device);
      replica.optimizer().set_values_from_master();
      replica.optimizer().set_updates(checkpoint->state().step);
      step = static_cast<int>(checkpoint->state().step) + 1;
    }
    TinyBatches batches(config, grid.data().rank());
    Timers timers;
    for (; step <= last; ++step) {
      const StepSums sums = replica.forward_backward(batches.step(step), step, batches.loss(), timers);
      const Replica::Update update = replica.update(sums, {.learning_rate = 1e-3, .weight_decay = 0.1}, timers);
      if (world.rank() == 0) trained.losses.push_back(update.loss.total);
    }
    save_checkpoint(world, save_to, {.step = last}, replica.owned_slices(), *backend.device);
    const std::lock_guard lock(mutex);
    for (const TensorSlice& slice : replica.owned_slices()) assemble(slice, trained.parameters);
  });
  return trained;
}

}  // namespace

TEST_CASE("BERT and T5: a checkpoint continues on any layout with the same bytes") {
  const auto variant = GENERATE(like_bert, like_megatron_bert, like_t5, like_megatron_t5);
  const TemporaryFolder folder;
  const BertLayout cube{2, 2, 2};
  const TrainedBert whole = train(config_of(cube, variant), folder.file("none"), kBertSteps, folder.file("whole"));
  const TrainedBert saved = train(config_of(cube, variant), folder.file("none"), kBreak, folder.file("saved"));
  for (const BertLayout& layout :
       {BertLayout{1, 1, 1}, BertLayout{4, 1, 1}, BertLayout{1, 4, 2, true}, BertLayout{2, 1, 2, false, "zero_bubble"},
        BertLayout{1, 2, 2, false, "interleaved"}}) {
    CAPTURE(layout.tensor, layout.data, layout.pipeline, layout.schedule);
    const std::string there = folder.file("there"), back = folder.file("back");
    const TrainedBert carried = train(config_of(layout, variant), folder.file("saved"), kBreak, there);
    CHECK(carried.parameters == saved.parameters);
    const TrainedBert further = train(config_of(layout, variant), there, kBertSteps, folder.file("further"));
    REQUIRE(further.losses.size() == kBertSteps - kBreak);
    for (std::size_t i = 0; i < further.losses.size(); ++i) {
      CHECK(further.losses[i] == Approx(whole.losses[kBreak + i]).epsilon(1e-5));
    }
    // Where it began, nothing has changed: moments too.
    train(config_of(cube, variant), there, kBreak, back);
    const TrainedBert again = train(config_of(cube, variant), back, kBertSteps, folder.file("again"));
    CHECK(again.parameters == whole.parameters);
    for (const char* name : {"there", "back", "further", "again"}) std::filesystem::remove_all(folder.file(name));
  }
}

TEST_CASE("BERT: a plan counts the whole square of attention, and both heads") {
  const Config config = config_of({}, GENERATE(like_bert, like_megatron_bert));
  const MemoryPlan plan = plan_memory(config, {}, {});
  const double tokens = 8 * 16, layers = 4, s = 16, h = 32;
  const double attention = layers * 12 * s * h;  // scores and values, thrice
  CHECK(plan.matmul_flops == Approx(tokens * (flops_per_token(config.model).model - attention)));
  CHECK(plan.attention_flops == Approx(tokens * layers * 14 * s * h));  // whose backward makes the scores again
  // Operations that recomputation repeats count as the hardware's in metrics.
  for (const std::int64_t recomputed : {1, 4}) {
    Config again = config;
    again.recompute = {"full", recomputed};
    const MemoryPlan repeated = plan_memory(again, {}, {});
    CHECK(repeated.matmul_flops + repeated.attention_flops - plan.matmul_flops - plan.attention_flops ==
          Approx(tokens * (flops_per_token(config.model, recomputed).hardware - flops_per_token(config.model).model)));
  }
}

TEST_CASE("T5: a plan counts the operations of both streams") {
  const Config config = config_of({}, GENERATE(like_t5, like_megatron_t5));
  const MemoryPlan plan = plan_memory(config, {}, {});
  const ModelConfig& model = config.model;
  const double samples = 8, s = 16, h = 32, d = static_cast<double>(model.decoder_sequence_length);
  const double squares =
      static_cast<double>(model.layers) * s * s + static_cast<double>(model.decoder_layers) * (d * d / 2 + d * s);
  CHECK(plan.matmul_flops == Approx(samples * (s * flops_per_token(model).model - 12 * h * squares)));
  for (const RecomputedLayers& recomputed :
       {RecomputedLayers{1, 0}, RecomputedLayers{model.layers, model.decoder_layers}}) {
    Config again = config;
    again.recompute = {"full", recomputed.decoder_layers > 0 ? 0 : 1};
    const MemoryPlan repeated = plan_memory(again, {}, {});
    CHECK(repeated.matmul_flops + repeated.attention_flops - plan.matmul_flops - plan.attention_flops ==
          Approx(samples * s * (flops_per_token(model, recomputed).hardware - flops_per_token(model).model)));
  }
}

TEST_CASE("BERT: scoring and generating text are refused") {
  run_as_threads(1, [](Communicator& world) {
    const Config config = config_of({}, like_bert);
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    const std::span<const MicroBatch> micro_batches = batches.step(1);
    const std::vector<TargetResults> results(micro_batches.size());
    require_error(ErrorKind::configuration, {"\"bert\" predicts no next token: it cannot be scored"},
                  [&] { replica.score(micro_batches, results, timers); });
    Arena arena("cache");
    require_error(ErrorKind::configuration, {"predicts no next token: it generates no text"},
                  [&] { replica.stage().make_cache(arena, {.capacity = 8, .samples = 1}, DType::f32); });
  });
}
