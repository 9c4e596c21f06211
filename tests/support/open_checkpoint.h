// A checkpoint, opened and verified on one rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "distributed/comm/thread_communicator.h"

namespace megatron::test {

inline CheckpointReader open_alone(const std::string& path) {
  std::optional<CheckpointReader> reader;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    reader = open_named_checkpoint(world, path, warnings);
  });
  return std::move(*reader);
}

}  // namespace megatron::test
