#include "distributed/comm/process_grid.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "base/text/text.h"
#include "distributed/comm/group_members.h"

namespace megatron {

GridCoordinates coordinates_of(int rank, const GridShape& shape) {
  internal_check(rank >= 0 && rank < shape.ranks(), "rank outside the process grid", rank, shape.ranks());
  GridCoordinates at;
  at.tensor = rank % shape.tensor;
  rank /= shape.tensor;
  at.context = rank % shape.context;
  rank /= shape.context;
  at.data = rank % shape.data;
  at.pipeline = rank / shape.data;
  return at;
}

int rank_of(const GridCoordinates& at, const GridShape& shape) {
  return ((at.pipeline * shape.data + at.data) * shape.context + at.context) * shape.tensor + at.tensor;
}

int copy_rank(CopyGroup group, const GridCoordinates& at, const GridShape& shape) {
  const int data = group == CopyGroup::experts ? at.data / shape.expert : at.data;
  return data * shape.context + at.context;
}

int shard_rank(CopyGroup group, const GridCoordinates& at, const GridShape& shape) {
  return copy_rank(group, at, shape) % shape.shards(group);
}

int replica_rank(const GridCoordinates& at, const GridShape& shape) {
  return at.data / shape.data_of_replica();
}

namespace {

enum class Carries { tensors, decisions };

/// One kind of group. `to_first` moves a member's coordinates to those of its group's first member.
struct GroupRow {
  Group group;
  const char* name;
  Carries carries;
  void (*to_first)(GridCoordinates& at, const GridShape& shape);
  /// Rows above whose communicator it is where the members are the same.
  std::array<std::optional<Group>, 2> same_as = {};
};

constexpr std::array<GroupRow, kGroupCount> kRows = {{
    {Group::tensor, "tensor", Carries::tensors, [](GridCoordinates& at, const GridShape&) { at.tensor = 0; }},
    {Group::context, "context", Carries::tensors, [](GridCoordinates& at, const GridShape&) { at.context = 0; }},
    {Group::data, "data", Carries::tensors, [](GridCoordinates& at, const GridShape&) { at.data = 0; }},
    {Group::copies,
     "copies",
     Carries::tensors,
     [](GridCoordinates& at, const GridShape&) { at.context = at.data = 0; },
     {Group::data}},
    {Group::expert, "expert", Carries::tensors,
     [](GridCoordinates& at, const GridShape& shape) { at.data -= at.data % shape.expert; }},
    {Group::expert_copies,
     "expert copies",
     Carries::tensors,
     [](GridCoordinates& at, const GridShape& shape) {
       at.context = 0;
       at.data %= shape.expert;
     },
     {Group::copies}},
    {Group::shards,
     "shards",
     Carries::tensors,
     [](GridCoordinates& at, const GridShape& shape) {
       at.context = 0;
       at.data -= at.data % shape.data_of_replica();
     },
     {Group::copies}},
    {Group::expert_shards,
     "expert shards",
     Carries::tensors,
     [](GridCoordinates& at, const GridShape& shape) {
       at.context = 0;
       const int within = at.data % shape.data_of_replica();
       at.data += within % shape.expert - within;
     },
     {Group::expert_copies, Group::shards}},
    {Group::replicas, "replicas", Carries::tensors,
     [](GridCoordinates& at, const GridShape& shape) { at.data %= shape.data_of_replica(); }},
    {Group::control, "control", Carries::decisions, [](GridCoordinates& at, const GridShape&) { at.data = 0; }},
    {Group::pipeline, "pipeline", Carries::tensors, [](GridCoordinates& at, const GridShape&) { at.pipeline = 0; }},
    {Group::model, "model", Carries::tensors,
     [](GridCoordinates& at, const GridShape&) { at.tensor = at.pipeline = 0; }},
    {Group::kv_replicas, "kv_replicas", Carries::tensors,
     [](GridCoordinates& at, const GridShape& shape) { at.tensor -= at.tensor % shape.kv_replicas; }},
}};

static_assert([] {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].group != static_cast<Group>(i)) return false;
  }
  return true;
}());

/// By rank: its group's first member. Ranks within a group keep the world's order, which is ascending along every axis.
template <class ToFirst>
std::vector<int> colours_of(const GridShape& shape, const ToFirst& to_first) {
  std::vector<int> colours;
  colours.reserve(static_cast<std::size_t>(shape.ranks()));
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    GridCoordinates at = coordinates_of(rank, shape);
    to_first(at);
    colours.push_back(rank_of(at, shape));
  }
  return colours;
}

std::vector<int> colours_of_row(const GridShape& shape, const GroupRow& row) {
  return colours_of(shape, [&](GridCoordinates& at) { row.to_first(at, shape); });
}

std::vector<int> colours_of_tie(const GridShape& shape, const std::vector<int>& stages) {
  return colours_of(shape, [&](GridCoordinates& at) {
    if (std::find(stages.begin(), stages.end(), at.pipeline) != stages.end()) at.pipeline = stages.front();
  });
}

std::string name_of_tie(std::size_t index) {
  return std::string(kTieName) + std::to_string(index);
}

void check_ties(const GridShape& shape) {
  for (const std::vector<int>& stages : shape.ties) {
    internal_check(!stages.empty() && stages.front() >= 0 && stages.back() < shape.pipeline &&
                       std::adjacent_find(stages.begin(), stages.end(), std::greater_equal()) == stages.end(),
                   "a tie is a set of the pipeline's stages, ascending", stages, shape.pipeline);
  }
}

}  // namespace

std::optional<std::vector<int>> colours_of_group(const GridShape& shape, std::string_view name) {
  if (name == "world") return std::vector<int>(static_cast<std::size_t>(shape.ranks()), 0);
  for (const GroupRow& row : kRows) {
    if (name == row.name) return colours_of_row(shape, row);
  }
  for (std::size_t i = 0; i < shape.ties.size(); ++i) {
    if (name == name_of_tie(i)) return colours_of_tie(shape, shape.ties[i]);
  }
  return std::nullopt;
}

std::string_view name_of(Group group) {
  switch (group) {
    case Group::tie: return "tie";
    case Group::world: return "world";
    case Group::any: return "any";
    default: return kRows[static_cast<std::size_t>(group)].name;
  }
}

std::optional<int> world_rank_of(const GridShape& shape, std::string_view group, int rank, int member) {
  const std::optional<std::vector<int>> colours = colours_of_group(shape, group);
  if (!colours || rank < 0 || rank >= shape.ranks()) return std::nullopt;
  for (int other = 0; other < shape.ranks(); ++other) {
    const bool same = (*colours)[static_cast<std::size_t>(other)] == (*colours)[static_cast<std::size_t>(rank)];
    if (same && member-- == 0) return other;
  }
  return std::nullopt;
}

ProcessGrid::ProcessGrid(Communicator& world, const GridShape& shape, Communicator* transport)
    : world_(world), shape_(shape) {
  verify(shape.tensor > 0 && shape.context > 0 && shape.data > 0 && shape.pipeline > 0, ErrorKind::configuration,
         "process grid tensor {} × context {} × data {} × pipeline {}: every extent must be at least 1", shape.tensor,
         shape.context, shape.data, shape.pipeline);
  verify(world.size() == shape.ranks(), ErrorKind::configuration,
         "process grid tensor {} × context {} × data {} × pipeline {} needs {}, but this job has {}; "
         "start that many or change [parallel]",
         shape.tensor, shape.context, shape.data, shape.pipeline, counted(shape.ranks(), "rank"), world.size());
  verify(shape.expert > 0 && shape.data % shape.expert == 0, ErrorKind::configuration,
         "process grid data {} is not divisible by expert {}: parallel.expert data ranks share a layer's experts out; "
         "choose a divisor of the data size",
         shape.data, shape.expert);
  internal_check(shape.replicas > 0 && shape.data % (shape.replicas * shape.expert) == 0,
                 "sets of copies that share are equal, of whole sets of experts", shape.replicas, shape.data);
  internal_check(shape.kv_replicas > 0 && shape.tensor % shape.kv_replicas == 0,
                 "tensor ranks that share parts are equally many of each", shape.tensor, shape.kv_replicas);
  at_ = coordinates_of(world.rank(), shape);

  check_ties(shape);

  const auto colours_of_row = [&](const GroupRow& row) { return megatron::colours_of_row(shape_, row); };
  Communicator& tensors = transport != nullptr ? *transport : world;
  for (const GroupRow& row : kRows) {
    const std::vector<int> colours = colours_of_row(row);
    Communicator*& place = by_group_[static_cast<std::size_t>(row.group)];
    const auto same = std::find_if(row.same_as.begin(), row.same_as.end(), [&](const std::optional<Group>& above) {
      return above && colours == colours_of_row(kRows[static_cast<std::size_t>(*above)]);
    });
    if (same != row.same_as.end()) {
      place = &of(**same);
      continue;
    }
    place = &add((row.carries == Carries::tensors ? tensors : world).split_known(colours, row.name));
  }
  for (const std::vector<int>& stages : shape_.ties) {
    ties_.push_back(&add(tensors.split_known(colours_of_tie(shape_, stages), name_of_tie(ties_.size()))));
  }
}

Communicator& ProcessGrid::tie(int index) const {
  internal_check(index >= 0 && index < ties(), "a tie that the grid's shape does not have", index, ties());
  return *ties_[static_cast<std::size_t>(index)];
}

Communicator& ProcessGrid::add(std::unique_ptr<Communicator> group) {
  groups_.push_back(group.get());
  owned_.push_back(std::move(group));
  return *groups_.back();
}

}  // namespace megatron
