// Benchmarks that compare cases with each other, or with what the machine can do: they take turns, round by round, so
// that other work of the machine affects all alike. Their numbers are medians over the rounds, and ratios are medians
// of the rounds' ratios. Nothing is owned after they return; they know neither files nor data sets.
#pragma once

#include <functional>
#include <vector>

#include "distributed/comm/communicator.h"
#include "planning/bench/benchmark_pipeline.h"
#include "planning/bench/cases.h"
#include "planning/bench/report.h"

namespace megatron {

/// A round is a step of every case. A row per case: the slowest rank's seconds per step, the job's tokens per second,
/// model FLOP/s over those of the first case, and over those of the first case's bare products (0 on two ranks), and
/// shares of this rank's step: moving tokens to experts and back, gradients included; routing, which is probabilities,
/// choices, places and terms of the loss. Collective over `world`.
Report measure_experts(const std::vector<Case>& cases, int rounds, Communicator& world);

struct OverlapSettings {
  int rounds = 5, steps = 3, threads = 1;  ///< each round times this number of steps of each kind; threads of a rank
};
/// Steps with communication under computation and without: as with parallel.overlap_gradients = false or, where overlap
/// is not a matter of that key, waiting for every operation where it is started. Several steps are timed as one: what a
/// step leaves in flight (the distributed optimizer's gathers) is the next one's to hide, and what the last leaves is
/// waited for within the time. A row per case: seconds per step of the slowest rank without and with overlap, the ratio
/// of with to without, and at data 2 of with to the first case's without. Collective over `world`, of two ranks, else
/// Error(configuration); the same on both.
Report measure_overlap(const std::vector<Case>& cases, const OverlapSettings& settings, Communicator& world);

/// Layouts of the same work on the same ranks. A round is some steps in a row of every case. A row per case: seconds
/// per step of the slowest rank, the job's tokens per second, these and model FLOP/s over the first case's, bytes that
/// this rank sends in a step and holds. Collective over `world`, of the cases' ranks.
Report measure_layouts(const LayoutComparison& comparison, int rounds, Communicator& world);

/// A row for each of memory_cases(): bytes of the rank that takes the most by the planner, by what they are for, and
/// their total. Needs no ranks.
Report plan_memory_cases();

struct GenerationCase {
  ModelConfig model = gpt2_124m(1024);
  std::int64_t batch = 16;     ///< prompts that are decoded together, compared with one
  std::int64_t prompt = 32;    ///< tokens of a prompt
  std::int64_t tokens = 17;    ///< new ones per prompt and round: the first comes from reading the prompt
  std::int64_t prefill = 256;  ///< tokens of the prompt whose reading is compared with a training forward
};
/// Tokens per second with random weights and prompts on the calling thread's core, a rank by itself, next to what
/// memory and the training's forward pass allow. One row, with `pipeline` in it; its member "decoding" has an object
/// for fp32 with one prompt and with a batch, then for bf16: seconds per step (a token of each prompt, its choice
/// included), bytes of weights and cache that a step reads, and tokens per second.
Report measure_generation(const GenerationCase& benchmark, const DecodingPipeline& pipeline, int rounds,
                          Communicator& world);

/// Models of a small decoder that differ in width alone, with heads of one size.
struct CoordinatesCase {
  std::vector<std::int64_t> widths = {64, 128, 256, 512};  ///< the first is the base of muP
  std::int64_t layers = 2;
  int steps = 10;
  double learning_rate = 0.003;
  std::function<void(Config&)> edit = {};  ///< further keys
};
/// The coordinate check of Yang and Hu et al. 2022: mean sizes of embedding, parts of layers and logits after training
/// each width on the same batch, without and with optimizer.scaling = "mup". Without clipping, since the gradient's
/// norm depends on the width. A row per scaling and width. Deterministic; on the calling thread's core, a rank by
/// itself.
Report measure_coordinates(const CoordinatesCase& benchmark, Communicator& world);

}  // namespace megatron
