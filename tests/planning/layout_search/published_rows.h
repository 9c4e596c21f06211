// The published rows that the planner is calibrated by: 18 of A100s, in two generations of Megatron-LM, and nine of
// H100s. Each is played once, by this program's code in the row's layout, and clocked as often as a fit needs.
#pragma once

#include <string>
#include <vector>

#include "planning/layout_search/step_time.h"

namespace megatron::test {

/// Narayanan et al. 2021 (arXiv 2104.04473), table 1; Korthikanti et al. 2022 (arXiv 2205.05198), table 5, each model
/// with full recomputation, and with sequence parallelism and selective recomputation; and the weak scaling of
/// Megatron-Core 0.8 (the table of Megatron-LM's README).
enum class Generation { megatron_2021, megatron_2022, megatron_2024 };
inline constexpr int kGenerations = 3;

struct PublishedRow {
  const char* name;
  Generation generation;
  std::int64_t layers, hidden, heads, tensor, pipeline, chunks, micro_batch, gpus, batch;
  bool full_recomputation;
  double teraflops;  ///< per GPU, by the publication's formula; 0: seconds are published
  double seconds;    ///< per step, where teraflops are not published

  Config config() const;
  /// Seconds of a step, as published.
  double published_seconds() const;
};

const std::vector<PublishedRow>& published_rows();

/// The row's layout as its publication's program plays it: where it computes again what this program does not, that is
/// added to the recording.
RecordedLayout record_row(const PublishedRow& row);

}  // namespace megatron::test
