// Benchmark of overlap: training steps of two ranks with communication under computation and without, in turn, for
// each layout of two ranks that has something to overlap.
//
// Several steps are timed as one: what a step leaves in flight (the distributed optimizer's gathers) is the next one's
// to hide, and what the last leaves is waited for within the time. Owns nothing after it returns; must not know files
// or data sets.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"

namespace megatron {

struct OverlapCase {
  std::string layout;
  Config config;  ///< resolved for two ranks
  /// Without overlap: parallel.overlap_gradients = false. Else, where overlap is not a matter of a key, every operation
  /// is waited for where it is started.
  bool by_key = false;
};

/// A small model at data 2 with the plain optimizer (the first) and the distributed one, and at tensor 2 without and
/// with sequence parallelism.
std::vector<OverlapCase> overlap_cases();

/// Seconds a step of the slowest rank, medians over the rounds; ratios are medians of the rounds' ratios.
struct OverlapTimes {
  std::string layout;
  double without = 0, with = 0;
  double ratio = 0;       ///< with over without
  double over_plain = 0;  ///< data 2: with, over the plain optimizer's without; 0: another layout
};

struct OverlapSettings {
  int rounds = 5, steps = 3, threads = 1;  ///< each round times this number of steps of each kind; threads of a rank
};

/// Collective over `world`, of two ranks; the same on both.
std::vector<OverlapTimes> measure_overlap(const std::vector<OverlapCase>& cases, const OverlapSettings& settings,
                                          Communicator& world);

/// A table for people, and a line of JSON a layout for scripts.
std::string describe(const std::vector<OverlapTimes>& times);
std::string to_json(const OverlapTimes& times);

}  // namespace megatron
