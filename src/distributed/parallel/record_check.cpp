#include "distributed/parallel/record_check.h"

#include <algorithm>
#include <map>
#include <numeric>
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
  std::string unequal_in_group(const Holders& holders) const {
    for (const auto& [rank, record] : holders) {
      for (const std::string& group : summing_groups(record)) {
        for (const int other : members(group, rank)) {
          const auto at = holders.find(other);
          if (at != holders.end() && at->second.part == record.part) continue;
          return fmt::format("rank {} sums its gradient over group '{}', in which rank {} has {}", rank, group, other,
                             at == holders.end() ? "none of it" : "another part of it");
        }
      }
    }
    return {};
  }
  std::string unconnected(const Holders& holders) const {
    std::map<int, int> first;  // the least rank that sums connect with a rank
    for (const auto& holder : holders) first[holder.first] = holder.first;
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [rank, record] : holders) {
        for (const std::string& group : summing_groups(record)) {
          for (const int other : members(group, rank)) {
            const int least = std::min(first[rank], first[other]);
            changed = changed || first[rank] != least || first[other] != least;
            first[rank] = first[other] = least;
          }
        }
      }
    }
    for (const auto& [a, record] : holders) {
      for (const auto& [b, other] : holders) {
        if (a < b && first[a] != first[b] && overlap(record.part, other.part)) {
          return fmt::format("ranks {} and {} hold the same elements, and no sum of gradients connects them", a, b);
        }
      }
    }
    return {};
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
      for (const int a : ranks) {
        if (!holders.at(a).owner) continue;
        counted += holders.at(a).part.elements();
        for (const int b : ranks) {
          if (a < b && holders.at(b).owner && overlap(holders.at(a).part, holders.at(b).part)) {
            return fmt::format("norms count it twice: ranks {} and {} both own the same elements", a, b);
          }
        }
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
    std::int64_t saved = 0;
    for (auto a = parts.begin(); a != parts.end(); ++a) {
      for (auto b = std::next(a); b != parts.end(); ++b) {
        if (overlap(a->first, b->first)) return fmt::format("{}: elements of two parts are the same", name);
      }
      std::int64_t end = 0;
      for (const auto& [first, count] : a->second) {
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
