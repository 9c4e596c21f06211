// Messages of the Errors that several thread ranks get.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "distributed/comm/thread_communicator.h"

namespace megatron::test {

/// Runs `body` on thread ranks; by rank "kind: message" of the Error that it threw, or "" if it returned.
inline std::vector<std::string> errors_by_rank(int ranks, const std::function<void(Communicator& world)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) {
    try {
      body(world);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(world.rank())] = fmt::format("{}: {}", name_of(error.kind()), error.what());
    }
  });
  return errors;
}

}  // namespace megatron::test
