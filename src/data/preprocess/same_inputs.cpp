#include "data/preprocess/same_inputs.h"

#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/core/error.h"
#include "distributed/comm/together.h"

namespace megatron {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(InputIdentity, path, bytes, pieces, seconds, nanoseconds)

namespace {

/// A file's size, or why it has none.
struct FoundSize {
  std::uint64_t bytes = 0;
  std::string problem;
  int kind = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FoundSize, bytes, problem, kind)

FoundSize find_size(const TextCorpus& corpus, std::size_t file) try {
  return {corpus.count_bytes(file), "", 0};
} catch (const Error& error) {
  return {0, error.what(), static_cast<int>(error.kind())};
}

}  // namespace

void require_same_inputs(Communicator& world, const std::vector<InputIdentity>& mine) {
  if (world.size() == 1) return;
  const std::vector<InputIdentity> root = broadcast(world, mine);
  const auto differ = [&](const std::string& how) {
    fail(ErrorKind::data, "{}, compared with rank 0; give all nodes the same input files", how);
  };
  const auto modified = together(world, [&]() -> std::string {
    const std::string difference = difference_of_inputs(mine, root);
    if (!difference.empty()) differ(difference);
    return modified_alike(mine, root) ? "" : "otherwise";
  });
  if (std::count(modified.begin(), modified.end(), "") == world.size()) return;
  // Copies that were made at other times: nothing less than all of their contents tells whether they are equal.
  const auto hashes = together(world, [&] {
    std::string all;
    for (const InputIdentity& file : mine) all += fmt::format("{:016x}", hash_input(file.path));
    return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
  });
  together(world, [&]() -> std::string {
    if (hashes[static_cast<std::size_t>(world.rank())] != hashes[0]) differ("an input file has other contents");
    return "";
  });
}

void share_sizes(Communicator& world, TextCorpus& corpus) {
  const auto found = by_turns(world, corpus.files(), [&](std::size_t i) { return find_size(corpus, i); });
  agree(world, [&] {
    std::vector<std::uint64_t> bytes;
    for (const FoundSize& size : found) {
      if (!size.problem.empty()) throw Error(static_cast<ErrorKind>(size.kind), size.problem);
      bytes.push_back(size.bytes);
    }
    corpus.set_file_bytes(bytes);
  });
}

}  // namespace megatron
