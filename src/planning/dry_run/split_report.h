// How the data is divided into training, validation and test, in words: for the start of a log and for --dry-run.
#pragma once

#include <string>
#include <vector>

#include "training/datasets/datasets.h"

namespace megatron {

struct SplitReport {
  std::vector<std::string> lines;     ///< one per split: tokens, share of the data, samples, samples per evaluation
  std::vector<std::string> warnings;  ///< no validation, splits far below their share, samples that count unequally
};

/// `config` must be resolved.
SplitReport report_splits(const Config& config, const Datasets& datasets);

}  // namespace megatron
