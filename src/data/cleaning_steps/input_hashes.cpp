#include "data/cleaning_steps/input_hashes.h"

#include <fmt/format.h>

#include "distributed/comm/together.h"

namespace megatron {

std::vector<std::string> hash_inputs(Communicator& world, const std::vector<InputIdentity>& files) {
  return by_turns(world, files.size(),
                  [&](std::size_t i) { return fmt::format("{:016x}", hash_input(files[i].path)); });
}

}  // namespace megatron
