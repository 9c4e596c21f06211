#include "planning/dry_run/parameter_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/text/text.h"
#include "training/optimizer/parameter_groups.h"
#include "training/step/declared_rank.h"

namespace megatron {

namespace {

constexpr std::int64_t kMostRanksOfPositions = 1 << 25;  // a rank's grid takes tenths of a microsecond per rank

template <class Visit>
void for_each_record(const ParameterStore& store, const Visit& visit) {
  for (const Parameter& parameter : store.all()) visit(parameter, true);
  for (const ModelState& state : store.states()) visit(state, false);
}

// "whole", or "experts over expert, rows over tensor".
std::string describe_cut(const Parameter& record, const GridShape& shape) {
  std::vector<std::string> cuts;
  if (record.copies == CopyGroup::experts && shape.expert > 1) cuts.emplace_back("experts over expert");
  for (int i = 0; i < record.global_shape.rank(); ++i) {
    if (record.box.extent[i] == record.global_shape[i]) continue;
    cuts.push_back(fmt::format("{} over tensor", record.global_shape.rank() == 1 ? "elements"
                                                 : i == 0                        ? "rows"
                                                                                 : "columns"));
    if (record.tensor == Placement::kv_replicated) cuts.push_back(fmt::format("{} ranks each", shape.kv_replicas));
  }
  return cuts.empty() ? "whole" : fmt::format("{}", fmt::join(cuts, ", "));
}

/// How a parameter is updated, in words: its group's number and its factor of the learning rate, where it has them.
struct UpdateWords {
  std::string group = {}, rule = "none", factor = {}, decay = "no";
};

UpdateWords describe_update(const ParameterGroups& groups, const Parameter& parameter) {
  const ParameterUpdate how = groups.of(parameter);
  const std::size_t group = groups.index_of(parameter);
  UpdateWords words{.rule = std::string(how.rule->name), .decay = how.decays ? "yes" : "no"};
  if (const double factor = how.learning_rate_factor(); factor != 1) words.factor = fmt::format("{:.6g}", factor);
  if (group == groups.groups().size()) return words;
  words.group = fmt::to_string(group);
  if (how.decays && groups.groups()[group].has_own("weight_decay")) {
    words.decay = fmt::to_string(how.settings->optimizer.weight_decay);
  }
  return words;
}

using Line = std::vector<std::string>;

// Columns as wide as what is in them, the last to the right; without those that have nothing below their heading.
std::string in_columns(const std::vector<Line>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (std::size_t column = 0; column < widths.size(); ++column) {
    for (const Line& line : lines) {
      if (&line != &lines.front()) widths[column] = std::max(widths[column], line[column].size());
    }
    if (widths[column] > 0) widths[column] = std::max(widths[column], lines.front()[column].size());
  }
  std::string text;
  for (const Line& line : lines) {
    for (std::size_t column = 0; column + 1 < widths.size(); ++column) {
      if (widths[column] > 0) text += fmt::format("{:<{}}  ", line[column], widths[column]);
    }
    text += fmt::format("{:>{}}\n", line.back(), widths.back());
  }
  return text;
}

}  // namespace

std::vector<ParameterRow> parameter_rows(const Config& config) {
  const GridShape shape = grid_shape(config);
  verify(std::int64_t{shape.ranks()} * shape.pipeline * shape.expert <= kMostRanksOfPositions, ErrorKind::configuration,
         "the parameters of {} ranks in {} pipeline stages and {} expert ranks are more than can be listed",
         shape.ranks(), shape.pipeline, shape.expert);
  std::vector<ParameterRow> rows;
  std::map<std::string, std::size_t> places;
  for_each_record(DeclaredRank(on_one_rank(config), 0).store, [&](const Parameter& parameter, bool trained) {
    places[parameter.name] = rows.size();
    rows.push_back({parameter, {}, trained});
  });
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    for (int data = 0; data < shape.expert; ++data) {  // others hold copies of what these do
      const DeclaredRank rank(config, rank_of({.data = data, .pipeline = stage}, shape));
      for_each_record(rank.store, [&](const Parameter& parameter, bool trained) {
        ParameterRow& row = rows[places.at(parameter.name)];
        if (row.stages.empty()) {
          row.record = parameter;
          row.one_owner = trained && !rank.store.bucket_of(parameter).owned.empty();
        }
        if (row.stages.empty() || row.stages.back() != stage) row.stages.push_back(stage);
      });
    }
  }
  return rows;
}

std::string parameter_table(const Config& config) {
  const GridShape shape = grid_shape(config);
  const Shards shards = optimizer_shards(config, shape);
  const ParameterGroups groups(config);
  std::vector<Line> lines = {{"name", "shape", "cut", "values", "stage", "group", "update", "factor", "role", "decay",
                              "copies", "state", "elements"}};
  std::int64_t count = 0, elements = 0;
  for (const auto& [record, stages, trained, one_owner] : parameter_rows(config)) {
    const DType values = record.value.dtype();
    const int sharers = shards.of(record.copies);
    const UpdateWords words = trained ? describe_update(groups, record) : UpdateWords{};
    lines.push_back({record.name, record.global_shape.to_string(), describe_cut(record, shape),
                     values == DType::f32 ? "" : name_of(values), fmt::format("{}", fmt::join(stages, ", ")),
                     words.group, words.rule, words.factor, std::string(name_of(record.role)), words.decay,
                     fmt::to_string(shape.copies(record.copies)),
                     trained && sharers > 1 ? fmt::format("{}{}", one_owner ? "one of " : "1/", sharers) : "",
                     fmt::to_string(record.global_shape.elements())});
    if (trained) ++count, elements += record.global_shape.elements();
  }
  Line& total = lines.emplace_back(lines.front().size());
  total.front() = "total of " + counted(count, "trained tensor");
  total.back() = fmt::to_string(elements);
  return in_columns(lines);
}

}  // namespace megatron
