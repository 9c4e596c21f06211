// Bounds for the rows of the schema, and macros that name a key and its field. Internal to src/config; the files
// schema_*.cpp have the rows.
#pragma once

#include <vector>

#include "config/schema/constraints.h"

namespace megatron {

// Largest values: far above any use, small enough that no product in the program passes 2^63.
inline constexpr double kMaxExtent = 1 << 24;                       // hidden sizes, ranks, micro-batches
inline constexpr double kMaxLayers = 1 << 16;                       // each has a dozen records in the program
inline constexpr double kMaxVocabulary = 1 << 30;                   // token ids are 32-bit integers
inline constexpr double kMaxBuckets = 128, kMaxDistance = 1 << 20;  // for a bias by distance: DistanceBuckets
inline constexpr double kMaxBatch = 1 << 30;                        // samples in one update
inline constexpr double kMaxSteps = 1e12;
inline constexpr double kMaxCurriculum = 1 << 30;  // lengths and steps of it
inline constexpr double kMaxSamples = 1e15;
inline constexpr double kMaxTokens = 1e18;
inline constexpr double kMaxLossScale = 0x1p100;
inline constexpr double kMaxExperts = 1 << 12;
inline constexpr double kMaxLabels = 1 << 16, kMaxChoices = 1 << 10, kMaxExtraIds = 10'000;

// The table's name, the key's name, and the field of the same name.
#define MEGATRON_KEY(table, field)          \
#table, #field, [](Config & c) -> auto& { \
    return c.table.field;                   \
  }
// A key whose value is more than the field of its name: the part of Config that holds it.
#define MEGATRON_KEY_IN(table, field, part) \
#table, #field, [](Config & c) -> auto& { \
    return c.part;                          \
  }

// The rows, by tables of the input file.
std::vector<Key> model_keys();
std::vector<Key> moe_keys();
std::vector<Key> parallel_keys();
std::vector<Key> train_keys();
std::vector<Key> recipe_keys();  ///< loss, precision, recompute, optimizer, learning_rate
std::vector<Key> run_keys();     ///< data, task, evaluation, checkpoint, run

}  // namespace megatron
