#include "data/cleaning_steps/input_hashes.h"

#include <fmt/format.h>

#include "distributed/comm/together.h"

namespace megatron {

std::vector<std::string> hash_inputs(Communicator& world, const std::vector<InputIdentity>& files) {
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  const auto parts = together(world, [&] {
    std::vector<std::string> mine(files.size());
    for (std::size_t i = rank; i < files.size(); i += ranks)
      mine[i] = fmt::format("{:016x}", hash_input(files[i].path));
    return mine;
  });
  std::vector<std::string> hashes;
  for (std::size_t i = 0; i < files.size(); ++i) hashes.push_back(parts[i % ranks][i]);
  return hashes;
}

}  // namespace megatron
