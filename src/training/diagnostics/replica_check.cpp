#include "training/diagnostics/replica_check.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/system/host_name.h"
#include "distributed/comm/gather.h"

namespace megatron {

namespace {

constexpr std::size_t kStagingBytes = std::size_t{256} << 10;  // stays in a core's cache
constexpr std::size_t kMostNamed = 3, kMostRanks = 8;          // tensors of a message, and ranks of a list

/// A rank's host, and the names and hashes of its slices.
struct RankSlices {
  std::string host;
  std::vector<std::pair<std::string, std::uint64_t>> slices;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankSlices, host, slices)

/// Ranks by the hash of their copy of one slice of a tensor.
using Copies = std::map<std::uint64_t, std::vector<int>>;

std::string list_of(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (const int rank : ranks) {
    if (names.size() == kMostRanks) {
      names.push_back(fmt::format("{} more", ranks.size() - kMostRanks));
      break;
    }
    names.push_back(fmt::format("{} ({})", rank, hosts[static_cast<std::size_t>(rank)]));
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

/// Who is wrong is known where most copies agree.
std::string describe_copies(const Copies& copies, const std::vector<std::string>& hosts) {
  std::vector<std::vector<int>> groups;
  std::size_t all = 0;
  for (const auto& [hash, ranks] : copies) {
    groups.push_back(ranks);
    all += ranks.size();
  }
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  if (2 * groups.front().size() <= all) {
    std::vector<std::string> lists;
    for (const std::vector<int>& ranks : groups) lists.push_back(list_of(ranks, hosts));
    return fmt::format("{} disagree, and which is right cannot be told", fmt::join(lists, " and "));
  }
  std::vector<int> odd;
  for (std::size_t i = 1; i < groups.size(); ++i) odd.insert(odd.end(), groups[i].begin(), groups[i].end());
  std::sort(odd.begin(), odd.end());
  return fmt::format("{} disagree{} with the {} others", list_of(odd, hosts), odd.size() == 1 ? "s" : "",
                     groups.front().size());
}

/// Compares what all ranks have described, whatever axis of the grid made the copies.
std::string find_differences(const std::vector<RankSlices>& ranks) {
  std::vector<std::string> hosts, order;
  std::map<std::string, Copies> copies;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    hosts.push_back(ranks[rank].host);
    for (const auto& [name, hash] : ranks[rank].slices) {
      Copies& of_slice = copies[name];
      if (of_slice.empty()) order.push_back(name);
      of_slice[hash].push_back(static_cast<int>(rank));
    }
  }
  std::string text;
  std::size_t found = 0;
  for (const std::string& name : order) {
    const Copies& of_slice = copies.at(name);
    if (of_slice.size() == 1) continue;
    if (++found <= kMostNamed) text += fmt::format("\n  {}: {}", name, describe_copies(of_slice, hosts));
  }
  if (found > kMostNamed) text += fmt::format("\n  and {} more tensors", found - kMostNamed);
  return text;
}

std::string which_elements(const Parameter& parameter, const FlatRange& part) {
  const std::int64_t first = part.first - parameter.first;
  return fmt::format(", elements {} to {}", first, first + part.count - 1);
}

}  // namespace

struct ReplicaCheck::HashState {
  XXH3_state_t* state = XXH3_createState();
  HashState() { internal_check(state != nullptr, "no memory for the state of a hash"); }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
};

ReplicaCheck::ReplicaCheck(const ProcessGrid& grid, const ParameterStore& store, Device& device,
                           const Optimizer& optimizer)
    : grid_(grid), device_(device), staging_(kStagingBytes), state_(std::make_unique<HashState>()) {
  const auto held_by = [&grid](const Communicator& copies) {
    return [&grid, group = &copies](const Slice& slice) {
      return slice.over_copies && &grid.copies(slice.parameter->copies) == group;
    };
  };
  holders_ = {
      {&grid.copies(), held_by(grid.copies())},
      {&grid.tensor(),
       [](const Slice& slice) {
         return slice.parameter->tensor == Placement::replica || slice.parameter->tensor == Placement::partial;
       }},
      {&grid.kv_replicas(), [](const Slice& slice) { return slice.parameter->tensor == Placement::kv_replicated; }},
      {&grid.replicas(), [](const Slice& slice) { return slice.over_replicas; }},
  };
  if (Communicator& experts = grid.copies(CopyGroup::experts); &experts != &grid.copies()) {
    holders_.push_back({&experts, held_by(experts)});
  }
  for (int i = 0; i < grid.ties(); ++i) {
    holders_.push_back({&grid.tie(i), [i](const Slice& slice) { return slice.parameter->tie == i; }});
  }
  for (const Parameter& parameter : store.all()) {
    const bool divided = store.divides_weights_of(store.bucket_of(parameter));
    if (!divided) add({&parameter, parameter.value, "", true, false});
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer.owned())) {
      if (divided) add({&parameter, store.values_of(part), which_elements(parameter, part), false, true});
      add_state(parameter, part, optimizer, store.sharded());
    }
  }
  for (const ModelState& state : store.states()) add({&state, state.value, "", true, false});
}

void ReplicaCheck::add_state(const Parameter& parameter, const FlatRange& part, const Optimizer& optimizer,
                             bool shared_out) {
  const Optimizer::State state = optimizer.state(part);
  const std::string which = shared_out ? which_elements(parameter, part) : "";
  if (optimizer.has_master_copy()) {
    add({&parameter, state.master, fmt::format(" (fp32 master{})", which), !shared_out, shared_out});
  }
  for (const auto& [name, numbers] : state.states) {
    add({&parameter, numbers, fmt::format(" (state {}{})", name, which), false, shared_out});
  }
}

// A slice that this rank alone holds need not be read.
void ReplicaCheck::add(Slice slice) {
  const bool held_elsewhere = std::any_of(holders_.begin(), holders_.end(), [&](const Holders& holders) {
    return holders.group->size() > 1 && holders.hold(slice);
  });
  if (held_elsewhere) slices_.push_back(std::move(slice));
}

ReplicaCheck::~ReplicaCheck() = default;

std::uint64_t ReplicaCheck::hash_of(ConstTensor values) {
  XXH3_64bits_reset(state_->state);
  const auto* from = static_cast<const std::byte*>(values.data());
  for (std::size_t left = values.bytes(); left > 0;) {
    const std::size_t now = std::min(left, staging_.size());
    device_.copy_to_host(staging_.data(), from, now);
    XXH3_64bits_update(state_->state, staging_.data(), now);
    from += now;
    left -= now;
  }
  return XXH3_64bits_digest(state_->state);
}

// One hash of the selected slices, of which the largest and the smallest in the group are asked for: constant traffic
// whatever the size of the group.
bool ReplicaCheck::differ(const Holders& holders) const {
  if (holders.group->size() == 1) return false;
  XXH3_64bits_reset(state_->state);
  for (const Slice& slice : slices_) {
    if (holders.hold(slice)) XXH3_64bits_update(state_->state, &slice.hash, sizeof slice.hash);
  }
  const auto hash = static_cast<double>(XXH3_64bits_digest(state_->state) >> 12);  // 52 bits: a double has them all
  std::array<double, 2> extremes{hash, -hash};
  holders.group->all_reduce_values(extremes, kDecision);
  return extremes[0] != -extremes[1];
}

std::vector<std::pair<std::string, std::uint64_t>> ReplicaCheck::hashes() const {
  std::vector<std::pair<std::string, std::uint64_t>> hashes;
  for (const Slice& slice : slices_) {
    const Parameter& parameter = *slice.parameter;
    const std::string part =
        !(parameter.box.extent == parameter.global_shape)
            ? fmt::format(" [part {} at {}]", parameter.box.extent.to_string(), parameter.box.offset.to_string())
            : "";
    hashes.emplace_back(parameter.name + part + slice.of, slice.hash);
  }
  return hashes;
}

void ReplicaCheck::run(const std::string& when) {
  for (Slice& slice : slices_) slice.hash = hash_of(slice.values);
  bool bad = false;
  for (const Holders& holders : holders_) bad = differ(holders) || bad;
  if (!grid_.agree(bad)) return;
  Communicator& world = grid_.world();
  const std::vector<RankSlices> ranks = gather(world, RankSlices{host_name(), hashes()});
  const std::string differences = world.broadcast_text(world.rank() == 0 ? find_differences(ranks) : "", 0);
  fail(ErrorKind::numerics,
       "{}, ranks that must hold the same values do not; the memory, processor or network of a node that is named here "
       "is the first to suspect. Take it out of the job and run the same command again: it resumes from the newest "
       "checkpoint, whose copies were still the same{}",
       when, differences);
}

}  // namespace megatron
