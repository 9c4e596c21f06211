// One training step of a golden file's model on thread ranks: its losses and reassembled gradients.
#pragma once

#include "golden/golden_file.h"

namespace megatron::test {

struct GoldenLayout {
  int tensor = 1, pipeline = 1, data = 1;
  int micro_batch = 1;
  const char* schedule = "1f1b";
  bool sequence_parallel = false, recompute = false;
  int virtual_stages = 1;
  std::vector<std::int64_t> layers_per_stage = {};  ///< empty: evenly
  int expert = 1;
};

std::string in_words(const GoldenLayout& layout);

struct GoldenStep {
  std::vector<double> terms;  ///< terms of the loss
  double loss = 0, gradient_norm = 0;
  NamedValues gradients;
};

/// One step on golden.batch at the golden values, cut into micro-batches by samples.
GoldenStep run_golden_step(const Golden& golden, const GoldenLayout& layout);

double norm_of(const std::vector<float>& values);

/// Checks loss, gradient norm and every gradient, each within the tolerance relative to its size; the gradient of a key
/// bias, zero in exact arithmetic, by the size of the query bias'.
void check_golden_step(const Golden& golden, const GoldenStep& step, double tolerance);

}  // namespace megatron::test
