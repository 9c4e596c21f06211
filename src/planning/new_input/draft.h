// Draft: an input file while its questions are being answered: the values so far, and what else is known of the run.
// Plain data; a copy of it is what "back to the question before" returns to.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/rules/resolve.h"
#include "config/schema/config.h"

namespace megatron {

struct Draft {
  Config config;
  int ranks = 0;                               ///< 0: not known yet
  std::string length = "steps";                ///< the key of [train] that says how long the run is
  std::string hardware;                        ///< for CUDA devices: a machine's name or file, or kOtherHardware
  std::optional<DataFacts> facts;              ///< where the data can be read
  std::vector<Config> layouts;                 ///< proposed, the best first
  std::map<std::string, std::string> in_file;  ///< keys that the file will have, with their values in TOML
};

inline constexpr const char* kOtherHardware = "other";

/// Names of the questions that are still to come.
using Undecided = std::set<std::string>;

}  // namespace megatron
