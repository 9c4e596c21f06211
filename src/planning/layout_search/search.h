// The search for layouts: enumerates what a number of ranks can do with a run, drops what the configuration's rules or
// memory forbid, and plays what may be among the best. A layout is played only if a lower bound of its time, by its
// operations and its pipeline's formula alone, is below the time of the last of the best found so far.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/rules/resolve.h"
#include "planning/layout_search/step_time.h"

namespace megatron {

struct PlannedLayout {
  Config config;  ///< as the input file would say it: not resolved
  RecordedLayout recorded;
  StepTime time;
  double run_seconds = 0;  ///< 0: the length is in epochs of data that are not there
};

struct SearchResult {
  std::vector<PlannedLayout> best;  ///< the fastest first
  int candidates = 0;               ///< layouts that the rules allow
  int too_large = 0;                ///< candidates that memory does not hold
  int timed = 0;
};

struct SearchSettings {
  int ranks = 1, results = 10;
  const DataFacts* data = nullptr;
  bool recompute_parts = true;  ///< also with recompute.parts other than the default
};

/// From what costs nothing to what saves most.
std::vector<RecomputeConfig> recomputations_of_searches();

/// `config` as parsed; its layout, micro-batch size and recomputation are what is searched for, all else stays.
/// Throws Error(configuration) where no layout is allowed, with a reason, and where none fits, with the smallest need.
SearchResult search_layouts(const Config& config, const Hardware& hardware, const SearchSettings& settings);

/// One layout, the file's.
PlannedLayout plan_layout(const Config& config, const Hardware& hardware, const SearchSettings& settings);

}  // namespace megatron
