#include "distributed/parallel/record_check.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"
#include "distributed/comm/group_members.h"

namespace megatron {

namespace {

using Extents = std::vector<std::int64_t>;

/// A rank's part of a tensor.
struct Part {
  Extents offset, extent;
  auto operator<=>(const Part&) const = default;
  std::int64_t elements() const {
    return std::accumulate(extent.begin(), extent.end(), std::int64_t{1}, std::multiplies<>());
  }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Part, offset, extent)

struct HeldRecord {
  std::string name;
  Extents shape;
  Part part;
  int placement = 0, copies = 0, tie = kNone;
  bool owner = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HeldRecord, name, shape, part, placement, copies, tie, owner)

struct HeldSlice {
  std::string name;
  Extents shape;
  Part part;
  std::int64_t first = 0, count = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HeldSlice, name, shape, part, first, count)

Extents extents_of(const Shape& shape) {
  Extents extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  return extents;
}

Part part_of(const Box& box) {
  return {extents_of(box.offset), extents_of(box.extent)};
}

bool overlap(const Part& a, const Part& b) {
  for (std::size_t i = 0; i < a.extent.size(); ++i) {
    if (a.offset[i] >= b.offset[i] + b.extent[i] || b.offset[i] >= a.offset[i] + a.extent[i]) return false;
  }
  return true;
}

/// The axis along which parts begin at the most places; parts of a tensor are cut along one.
std::size_t cut_axis(const std::vector<Part>& parts) {
  std::size_t best = 0, most = 0;
  for (std::size_t axis = 0; !parts.empty() && axis < parts[0].offset.size(); ++axis) {
    std::set<std::int64_t> places;
    for (const Part& part : parts) places.insert(part.offset[axis]);
    if (places.size() > most) best = axis;
    most = std::max(most, places.size());
  }
  return best;
}

/// Two parts, by number, that have elements in common: in the order of their places, each is compared with those that
/// begin before it ends, which are none but its neighbours where nothing overlaps.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(const std::vector<Part>& parts) {
  const std::size_t axis = cut_axis(parts);
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto first = [&](std::size_t part) { return parts[part].offset.empty() ? 0 : parts[part].offset[axis]; };
  const auto end = [&](std::size_t part) {
    return parts[part].extent.empty() ? 1 : first(part) + parts[part].extent[axis];
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return first(a) < first(b); });
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = i + 1; j < order.size() && first(order[j]) < end(order[i]); ++j) {
      if (overlap(parts[order[i]], parts[order[j]])) return std::minmax({order[i], order[j]});
    }
  }
  return std::nullopt;
}

std::int64_t elements_of(const Extents& shape) {
  return Part{{}, shape}.elements();
}

/// One parameter's records, by rank.
using Holders = std::map<int, HeldRecord>;

/// Names of the groups over which a record sums its gradient.
std::vector<std::string> summing_groups(const HeldRecord& record) {
  const bool experts = record.copies == static_cast<int>(CopyGroup::experts);
  std::vector<std::string> names{std::string(name_of(experts ? Group::expert_copies : Group::copies))};
  switch (static_cast<Placement>(record.placement)) {
    case Placement::split: break;
    case Placement::replica:
    case Placement::partial: names.emplace_back(name_of(Group::tensor)); break;
    case Placement::kv_replicated: names.emplace_back(name_of(Group::kv_replicas)); break;
  }
  if (record.tie != kNone) names.push_back(std::string(kTieName) + std::to_string(record.tie));
  return names;
}

class RecordCheck {
 public:
  RecordCheck(const GridShape& shape, const std::vector<std::vector<HeldRecord>>& ranks) : shape_(shape) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const HeldRecord& record : ranks[rank]) holders_[record.name][static_cast<int>(rank)] = record;
    }
  }
  /// The first mistake; empty: there is none.
  std::string find() const {
    for (const auto& [name, holders] : holders_) {
      for (const std::string& text : {unequal_in_group(holders), unconnected(holders), counted_wrongly(holders)}) {
        if (!text.empty()) return fmt::format("{}: {}", name, text);
      }
    }
    return {};
  }

 private:
  /// Members of a rank's group, for all groups of one name.
  class Members {
   public:
    Members(const GridShape& shape, const std::string& group)
        : colours_(colours_of_group(shape, group).value_or(std::vector<int>())) {
      for (std::size_t rank = 0; rank < colours_.size(); ++rank) {
        by_colour_[colours_[rank]].push_back(static_cast<int>(rank));
      }
    }
    /// None, if the grid has no such group.
    const std::vector<int>& of(int rank) {
      return by_colour_[colours_.empty() ? -1 : colours_[static_cast<std::size_t>(rank)]];
    }

   private:
    std::vector<int> colours_;  // by rank of the world
    std::map<int, std::vector<int>> by_colour_;
  };
  const std::vector<int>& members(const std::string& group, int rank) const {
    return members_.try_emplace(group, shape_, group).first->second.of(rank);
  }
  /// Calls `of_group` with each group over which a record sums once, and the first rank that does.
  template <class OfGroup>
  void for_summing_groups(const Holders& holders, const OfGroup& of_group) const {
    std::set<std::pair<std::string, int>> seen;  // by name and first member
    for (const auto& [rank, record] : holders) {
      for (const std::string& group : summing_groups(record)) {
        const std::vector<int>& ranks = members(group, rank);
        if (!ranks.empty() && seen.emplace(group, ranks.front()).second) of_group(group, ranks, rank);
      }
    }
  }
  std::string unequal_in_group(const Holders& holders) const {
    std::string found;
    for_summing_groups(holders, [&](const std::string& group, const std::vector<int>& ranks, int rank) {
      for (const int other : ranks) {
        const auto at = holders.find(other);
        if (!found.empty() || (at != holders.end() && at->second.part == holders.at(rank).part)) continue;
        found = fmt::format("rank {} sums its gradient over group '{}', in which rank {} has {}", rank, group, other,
                            at == holders.end() ? "none of it" : "another part of it");
      }
    });
    return found;
  }
  // Records passed unequal_in_group(): ranks that sums connect hold the same part, so different parts are not
  // connected.
  std::string unconnected(const Holders& holders) const {
    std::map<int, int> towards;  // from each rank to one that sums connect it with; the first ones to themselves
    for (const auto& holder : holders) towards[holder.first] = holder.first;
    const auto first_of = [&](int rank) {
      while (towards[rank] != rank) rank = towards[rank] = towards[towards[rank]];
      return rank;
    };
    for_summing_groups(holders, [&](const std::string&, const std::vector<int>& ranks, int) {
      for (const int other : ranks) {
        if (!holders.contains(other) || !holders.contains(ranks.front())) continue;
        const auto [least, most] = std::minmax({first_of(ranks.front()), first_of(other)});
        towards[most] = least;
      }
    });
    std::map<Part, int> first_holders;
    std::vector<Part> parts;
    std::vector<int> ranks;
    std::optional<std::pair<int, int>> apart;
    for (const auto& [rank, record] : holders) {
      const auto [at, added] = first_holders.emplace(record.part, rank);
      if (added) parts.push_back(record.part);
      if (added) ranks.push_back(rank);
      if (!apart && first_of(rank) != first_of(at->second)) apart.emplace(at->second, rank);
    }
    if (const auto both = find_overlap(parts); !apart && both) apart.emplace(ranks[both->first], ranks[both->second]);
    if (!apart) return {};
    return fmt::format("ranks {} and {} hold the same elements, and no sum of gradients connects them", apart->first,
                       apart->second);
  }
  std::string counted_wrongly(const Holders& holders) const {
    std::map<std::tuple<int, int>, std::vector<int>> copies;  // ranks by copy of the model, or of its experts
    for (const auto& [rank, record] : holders) {
      const GridCoordinates at = coordinates_of(rank, shape_);
      const bool experts = record.copies == static_cast<int>(CopyGroup::experts);
      copies[{at.context, experts ? at.data / shape_.expert : at.data}].push_back(rank);
    }
    for (const auto& [key, ranks] : copies) {
      std::int64_t counted = 0;
      std::vector<Part> parts;
      std::vector<int> owners;
      for (const int rank : ranks) {
        const HeldRecord& record = holders.at(rank);
        if (!record.owner) continue;
        counted += record.part.elements();
        parts.push_back(record.part);
        owners.push_back(rank);
      }
      if (const auto both = find_overlap(parts)) {
        return fmt::format("norms count it twice: ranks {} and {} both own the same elements", owners[both->first],
                           owners[both->second]);
      }
      const std::int64_t all = elements_of(holders.at(ranks.front()).shape);
      if (counted != all) {
        return fmt::format("norms leave {} of its {} elements out: none of ranks {} to {} owns them", all - counted,
                           all, ranks.front(), ranks.back());
      }
    }
    return {};
  }

  const GridShape& shape_;
  std::map<std::string, Holders> holders_;
  mutable std::map<std::string, Members> members_;  // by name of group, once it was asked for
};

std::string wrong_shares(const std::vector<std::vector<HeldSlice>>& ranks) {
  std::map<std::string, std::map<Part, std::map<std::int64_t, std::int64_t>>> tensors;  // counts by first element
  std::map<std::string, std::int64_t> elements;
  for (const std::vector<HeldSlice>& slices : ranks) {
    for (const HeldSlice& slice : slices) {
      elements[slice.name] = elements_of(slice.shape);
      if (slice.count == 0) continue;
      if (!tensors[slice.name][slice.part].emplace(slice.first, slice.count).second) {
        return fmt::format("{}: element {} of a part is saved twice", slice.name, slice.first);
      }
    }
  }
  for (const auto& [name, parts] : tensors) {
    std::vector<Part> cuts;
    for (const auto& part : parts) cuts.push_back(part.first);
    if (find_overlap(cuts)) return fmt::format("{}: elements of two parts are the same", name);
    std::int64_t saved = 0;
    for (const auto& part : parts) {
      std::int64_t end = 0;
      for (const auto& [first, count] : part.second) {
        if (first < end) return fmt::format("{}: element {} of a part is saved twice", name, first);
        end = first + count;
        saved += count;
      }
    }
    if (saved != elements[name]) {
      return fmt::format("{}: {} of {} elements are saved by no rank", name, elements[name] - saved, elements[name]);
    }
  }
  return {};
}

/// Throws on all ranks what rank 0 has found.
void agree_on(Communicator& world, const std::string& found) {
  const std::string text = world.broadcast_text(found, 0);
  if (!text.empty()) throw AgreedError(ErrorKind::numerics, text);
}

}  // namespace

void check_records(const ProcessGrid& grid, const ParameterStore& store) {
  std::vector<HeldRecord> own;
  const auto add = [&](const Parameter& parameter) {
    own.push_back({parameter.name, extents_of(parameter.global_shape), part_of(parameter.box),
                   static_cast<int>(parameter.tensor), static_cast<int>(parameter.copies), parameter.tie,
                   parameter.owner});
  };
  for (const Parameter& parameter : store.all()) add(parameter);
  for (const ModelState& state : store.states()) add(state);
  const std::vector<std::vector<HeldRecord>> ranks = gather(grid.world(), own);
  agree_on(grid.world(), grid.world().rank() == 0 ? RecordCheck(grid.shape(), ranks).find() : "");
}

void check_shares(Communicator& world, const std::vector<TensorSlice>& slices) {
  std::vector<HeldSlice> own;
  for (const TensorSlice& slice : slices) {
    own.push_back({slice.name, extents_of(slice.global_shape), part_of(slice.box), slice.first, slice.count});
  }
  const std::vector<std::vector<HeldSlice>> ranks = gather(world, own);
  agree_on(world, world.rank() == 0 ? wrong_shares(ranks) : "");
}

}  // namespace megatron
