// Helpers for tests of decoding: checkpoints of tiny models, decoders of them on ranks as threads, and logits without a
// cache to compare with. Assertions belong behind decode(): Catch2 takes them from one thread alone.
#pragma once

#include <functional>
#include <vector>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "inference/decoding/decoder.h"
#include "inference/decoding/inference_model.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "training/step/grid.h"

namespace megatron::test {

using Tokens = std::vector<std::int32_t>;

/// A run of a few steps whose weights are far from small.
struct TrainedRun {
  ShardFolder folder;
  std::string directory;

  explicit TrainedRun(void (*change)(ModelConfig&) = nullptr) {
    Config config = tiny_config();
    config.model.init_std = 0.2;
    if (change != nullptr) change(config.model);
    config.data.train = config.model.has_decoder() ? make_sentence_corpus(folder) : make_corpus(folder);
    config.run.directory = directory = folder.file("run");
    config.train.steps = 2;
    run_loop(config);
  }
};

inline Compute compute_of(Communicator& world, bool separate) {
  Compute compute{
      .backend = separate ? make_separate_backend() : make_cpu_backend(), .transport = {}, .description = {}};
  compute.transport = staged_transport(world, *compute.backend.device);
  return compute;
}

/// Memory that a decoder has allocated, next to its plan; without communication's.
inline void check_as_planned(const DecoderMemory& memory, const DecoderMemory& plan) {
  CHECK(memory.weights == plan.weights);
  CHECK(memory.cache == plan.cache);
  CHECK(memory.activations == plan.activations);
  CHECK(memory.workspace == plan.workspace);
}

struct Layout {
  int tensor = 1, pipeline = 1, data = 1;
  int ranks() const { return tensor * pipeline * data; }
};

/// `body` on every rank of a decoder of the run's newest checkpoint.
inline void decode(const std::string& run, const Layout& layout, DType type, const DecoderSizes& sizes, bool separate,
                   const std::function<void(Decoder&)>& body) {
  run_as_threads(layout.ranks(), [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, run, warnings);
    Config config = config_for_inference(checkpoint, layout.tensor, layout.pipeline);
    config.run.device = separate ? "cuda" : "cpu";
    GridShape shape = grid_shape(config);
    shape.data = layout.data;
    Compute compute = compute_of(world, separate);
    Device& device = *compute.backend.device;
    Decoder decoder(config, shape, world, std::move(compute), type, sizes);
    decoder.load(world, checkpoint);
    CheckedCollectives checks(decoder.grid(), device);
    body(decoder);
    checks.finish();
  });
}

/// Logits after each token of each text, without a cache. `encoded`: of an encoder-decoder, what its encoder reads.
inline std::vector<std::vector<float>> uncached(const std::string& run, std::span<const Tokens> texts,
                                                const Tokens& encoded = {}) {
  std::vector<std::vector<float>> logits(texts.size());
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, run, warnings);
    InferenceModel model(config_for_inference(checkpoint), world, compute_of(world, false));
    model.load(world, checkpoint);
    for (std::size_t i = 0; i < texts.size(); ++i) model.logits(texts[i], 0, logits[i], encoded);
  });
  return logits;
}

}  // namespace megatron::test
