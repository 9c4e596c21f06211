// The memory that each rank of a layout takes in steps and evaluations, next to what is planned for it.
#pragma once

#include <vector>

#include "training/step/memory_layout.h"
#include "training/step/replica.h"

namespace megatron::test {

struct RankMemory {
  MemoryPlan plan;
  std::size_t weights = 0, gradients = 0, optimizer = 0, scratch = 0, kernels = 0, device = 0;
  std::size_t file = 0;
  ExecutorMemory passes;
  int blocks_before = 0, blocks_after = 0;
  std::size_t batch = 0;    // with an evaluation task's results; only where there are tasks
  int blocks_of_tasks = 0;  // while they were scored
  std::int64_t parameters = 0;
};

/// Plays steps until the batch is as large as it grows, with an evaluation after each, on threads as ranks.
std::vector<RankMemory> measure_memory(const Layout& layout);

}  // namespace megatron::test
