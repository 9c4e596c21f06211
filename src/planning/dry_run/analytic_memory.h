// Memory of a rank by published formulas, printed next to what this program's own buffers will hold: Korthikanti et al.
// 2022 (arXiv 2205.05198) and Megatron-LM's theoretical_memory_usage.py. For 16-bit values; knows none of this
// program's buffers.
#pragma once

#include <string>

#include "training/step/replica.h"

namespace megatron {

/// The memory of a rank of the first stage, which holds the most.
struct AnalyticMemory {
  /// Weights, gradients and Adam's state: 18, or 6 + 12/d where d copies divide the state, 2 + 16/d where
  /// they divide gradients; 8 in place of the 12 with moments in bf16.
  double bytes_per_parameter = 0;
  std::string layer;       ///< the formula of a layer's activations per micro-batch
  double layer_bytes = 0;  ///< its value
  double activations = 0;  ///< for all micro-batches in flight, with embedding, and head where there is one stage
};

/// `config` must be resolved.
AnalyticMemory analytic_memory(const Config& config);

/// Both next to the plan of the first stage, and why they differ where they do: lines, each with its end.
std::string compare_with_analytic(const Config& config, const MemoryPlan& first_stage);

}  // namespace megatron
