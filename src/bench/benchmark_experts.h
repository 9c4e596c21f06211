// Benchmark of a mixture of experts: its training steps in turn with those of a dense model that does the same work
// for each token (one rank), and with its experts divided between two data ranks or whole on both (two ranks).
//
// Owns nothing after it returns; must not know files or data sets.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"

namespace megatron {

struct ExpertsCase {
  std::string name;
  Config config;  ///< resolved for the ranks that it is measured on
};

/// On one rank: the dense model (the first), and 8 experts of half its inner width, with 2 experts per token and room
/// for the tokens that on average choose an expert and for a quarter more. On two ranks: whole experts on both data
/// ranks (the first), and half of them on each.
std::vector<ExpertsCase> experts_cases(int ranks);

/// Medians over the rounds, each of one step of every case; ratios are medians of the rounds' ratios.
struct ExpertsTimes {
  std::string name;
  double seconds = 0;            ///< a step of the slowest rank
  double tokens_per_second = 0;  ///< the job's
  double ratio = 0;              ///< model FLOP/s over those of the first case
  double share = 0;              ///< model FLOP/s over those of the dense model's bare products; 0 on two ranks
  double moving = 0;             ///< share of the step: tokens to experts and back, gradients included
  double routing = 0;            ///< share of the step: probabilities, choices, places and terms of the loss
};

/// Collective over `world`; the same on all ranks, but the shares of the step are the rank's.
std::vector<ExpertsTimes> measure_experts(const std::vector<ExpertsCase>& cases, int rounds, Communicator& world);

/// A table for people, and a line of JSON a case for scripts.
std::string describe(const std::vector<ExpertsTimes>& times);
std::string to_json(const ExpertsTimes& times);

}  // namespace megatron
