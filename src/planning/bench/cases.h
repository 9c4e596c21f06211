// Cases of the benchmarks: models, their batches and their layouts. All train on pseudo-random tokens; nothing is read.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

struct Case {
  std::string name, title;
  Config config;     ///< resolved for ranks()
  int steps = 0;     ///< that are measured by default
  bool gpu = false;  ///< too large for a CPU; scripts/bench/bench_pytorch_gpu.py has the same

  int ranks() const {
    return static_cast<int>(config.parallel.tensor * config.parallel.context * config.parallel.pipeline *
                            config.parallel.data);
  }
};

/// A decoder without dropout, by default with GPT-2's vocabulary.
ModelConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t sequence,
                std::int64_t vocabulary = 50257);
/// GPT-2 124M on sequences of this length, with all its 1024 positions.
ModelConfig gpt2_124m(std::int64_t sequence);

/// The training of a model on one rank, in fp32; `edit` may change every key. Unless it changes the micro-batch, each
/// data rank has one per step. Resolved for the ranks of the layout. Errors: configuration, as resolve().
Config training_config(const ModelConfig& model, std::int64_t batch, const std::function<void(Config&)>& edit = {});

/// In `precision` (as precision.compute), on one rank: GPT-2 124M in two shapes, a small model, BERT-base, four layers
/// of either side of T5-base, and a Mixtral, whose 8 experts drop no tokens; on two GPT-2 124M at tensor 2 and data 2.
/// For a GPU, always in bf16: GPT-2 124M and 1.5B at batches that others publish their speed for, and four layers of a
/// 7B model.
std::vector<Case> benchmark_cases(std::string_view precision = "fp32");

/// On one rank: a dense model (the first), and 8 experts of half its inner width, with 2 experts per token and room for
/// the tokens that on average choose an expert and for a quarter more. On two ranks: whole experts on both data ranks
/// (the first), and half of them on each.
std::vector<Case> experts_cases(int ranks);

/// A small model at data 2 with the plain optimizer (the first) and the distributed one, and at tensor 2 without and
/// with sequence parallelism.
std::vector<Case> overlap_cases();

/// Layouts of the same work.
struct LayoutComparison {
  std::string name, title;
  std::vector<Case> cases;  ///< the first is what others are compared with
};
/// On two ranks at data 2: each optimizer.share, "state" first.
LayoutComparison share_comparison();
/// On two ranks: data 2 with sequences of half the length (the first), and context 2 with each exchange.
LayoutComparison context_comparison();

/// GPT-2 124M on tensor 2, pipeline 2, data 2: no option (the first), each alone, and those of Hugging Face
/// Accelerate's guide together.
std::vector<Case> memory_cases();

}  // namespace megatron
