#include "distributed/parallel/checked_group.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/core/philox.h"
#include "distributed/comm/group_members.h"

namespace megatron {

namespace {

/// From the sources' top on.
std::string place_of(const Statement& said) {
  const std::string_view file = said.where.file;
  std::size_t first = file.rfind("src/");
  if (first == std::string_view::npos) first = file.rfind("tests/");
  return fmt::format("{}:{} in {}", file.substr(first == std::string_view::npos ? 0 : first), said.where.line,
                     said.where.function);
}

std::vector<int> members_of(const GridShape& shape, std::string_view group, int rank) {
  std::vector<int> members;
  const std::optional<std::vector<int>> colours = colours_of_group(shape, group);
  if (!colours) return members;
  for (std::size_t other = 0; other < colours->size(); ++other) {
    if ((*colours)[other] == (*colours)[static_cast<std::size_t>(rank)]) members.push_back(static_cast<int>(other));
  }
  return members;
}

/// Groups of this kind that the rank is in; none if there is no such.
std::vector<std::vector<int>> groups_of(const GridShape& shape, Group group, int rank) {
  if (group != Group::tie) return {members_of(shape, name_of(group), rank)};
  std::vector<std::vector<int>> ties;
  for (std::size_t i = 0; i < shape.ties.size(); ++i) {
    ties.push_back(members_of(shape, std::string(kTieName) + std::to_string(i), rank));
  }
  return ties;
}

}  // namespace

std::string CheckedGroup::line(const SaidCall& call) const {
  return fmt::format("{}: {} \"{}\" in group '{}' ({})", place_of(call.said),
                     call.verb == Verb::none ? "use of" : fmt::format("{} of", name_of(call.verb)),
                     call.said.meaning->what, name, list_of(members));
}

std::string CheckedGroup::list_of(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

void CheckedGroup::require_meant(const SaidCall& call) const {
  const Group wanted = call.said.meaning->group;
  if (wanted == Group::any) return;
  const std::vector<std::vector<int>> meant = groups_of(shape, wanted, world_rank);
  if (std::find(meant.begin(), meant.end(), members) != meant.end()) return;
  fail(ErrorKind::numerics, "{}: they are of group '{}' ({})", line(call), name_of(wanted),
       meant.empty() ? "none here" : list_of(meant.front()));
}

std::uint64_t hash_of(const SaidCall& call) {
  std::uint64_t hash = hash_name(call.said.where.file);
  for (const std::uint64_t fact : {static_cast<std::uint64_t>(call.said.where.line),
                                   static_cast<std::uint64_t>(call.verb), hash_name(call.said.meaning->what)}) {
    hash = mix64(hash ^ fact);
  }
  return hash;
}

}  // namespace megatron
