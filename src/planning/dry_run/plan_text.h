// The plan of a run in words: grid, model, batch, schedule, saves and predicted memory. Text only; the numbers come
// from the program's own plan.
#pragma once

#include <string>
#include <vector>

#include "training/step/replica.h"

namespace megatron {

/// One plan per pipeline stage, in order: its first rank's, with the optimizer and the snapshot of the copies that have
/// most of them. No rank of the stage holds more, but for a few numbers in a snapshot without shards.
std::vector<MemoryPlan> plan_stages(const Config& config, const GridShape& shape, TransportKind transport);
/// With the transport that the configuration asks for.
std::vector<MemoryPlan> plan_stages(const Config& config, const GridShape& shape);

/// Share of a step, the largest one, in which a stage does not compute, if all are equally fast.
double bubble_fraction(const Config& config);

/// When a run saves, and how much of its work a failure costs: two lines.
std::string describe_saves(const Config& config);

/// Grid with rank order, layers and parameters of each stage, batch arithmetic, schedule with its bubble, and predicted
/// memory: the same text in a run's banner and in --dry-run.
std::string describe_plan(const Config& config, const std::vector<MemoryPlan>& stages);

}  // namespace megatron
