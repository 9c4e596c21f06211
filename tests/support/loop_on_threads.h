// Whole runs of the training loop with ranks as threads, on a small corpus, whose operations a test may spoil.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/injected_ops.h"
#include "support/separate_backend.h"
#include "support/small_corpus.h"

namespace megatron::test {

struct LoopResult {
  std::vector<std::string> told;  ///< by rank: "kind: message" of the error that ended it, or nothing
  std::string log;                ///< run.log
  std::vector<nlohmann::json> metrics;
};

/// Trains `config` (not resolved; its grid gives the number of ranks) in run.directory, from its newest checkpoint if
/// it has one. `spoil` is called on each rank before the start, and the grid made of `around` the world, if given.
/// With run.device = "cuda" it is on the double that stands in for a GPU, with such copies.
LoopResult run_loop(const Config& config,
                    const std::function<void(InjectedOps& ops, const ProcessGrid& grid)>& spoil = nullptr,
                    const std::function<std::unique_ptr<Communicator>(Communicator& world)>& around = nullptr,
                    Copies copies = Copies::late);

}  // namespace megatron::test
