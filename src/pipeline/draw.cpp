// The drawing of schedules: draw_schedules() of simulate.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipeline/simulate.h"

namespace megatron {

namespace {

char letter(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::forward: return 'F';
    case Action::Kind::backward:
    case Action::Kind::backward_input: return 'B';
    case Action::Kind::backward_weight: return 'W';
  }
  return '?';
}

/// F3, or with chunks F3a, F3b, ..., which beyond the alphabet become F3.26.
std::string name_of(const Action& action, bool with_chunk) {
  std::string name = fmt::format("{}{}", letter(action.kind), action.micro_batch);
  if (!with_chunk) return name;
  if (action.chunk < 26) return name + static_cast<char>('a' + action.chunk);
  return name + fmt::format(".{}", action.chunk);
}

using Schedules = std::vector<std::vector<Action>>;

/// One row of characters a stage, `cell` to a unit of time.
struct Table {
  std::vector<std::string> rows;
  std::size_t cell = 0, columns = 0;
};

Table make_table(const Schedules& schedules, const Simulation& simulation) {
  bool chunks = false;
  std::size_t longest = 0;
  for (const auto& list : schedules) {
    for (const Action& action : list) chunks = chunks || action.chunk > 0;
  }
  for (const auto& list : schedules) {
    for (const Action& action : list) longest = std::max(longest, name_of(action, chunks).size());
  }
  Table table;
  table.cell = longest + 1;
  table.columns = static_cast<std::size_t>(std::lround(simulation.makespan));
  for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
    std::string row;
    for (std::size_t i = 0; i < table.columns; ++i) row += fmt::format("{:<{}}", '.', table.cell);
    for (std::size_t i = 0; i < schedules[stage].size(); ++i) {
      const auto [start, finish] = simulation.spans[stage][i];
      const std::size_t begin = table.cell * static_cast<std::size_t>(std::lround(start));
      const std::size_t length = table.cell * static_cast<std::size_t>(std::lround(finish - start)) - 1;
      row.replace(begin, length, fmt::format("{:-<{}}", name_of(schedules[stage][i], chunks), length));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string draw_schedules(const Schedules& schedules, int width, int most_blocks) {
  const Simulation simulation = simulate(schedules, {.sends = SendMode::buffered});
  if (simulation.deadlock) return "the schedule cannot be played:\n" + simulation.explanation;
  const Table table = make_table(schedules, simulation);
  const std::size_t label = fmt::formatted_size("stage {:>3}  ", 0);
  const std::size_t room = std::max(static_cast<std::size_t>(width), label + table.cell) - label;
  const std::size_t a_block = room / table.cell;
  const std::size_t shown = std::min(table.columns, a_block * static_cast<std::size_t>(most_blocks));
  std::string text;
  for (std::size_t first = 0; first < shown; first += a_block) {
    if (first > 0) text += '\n';
    for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
      const std::size_t count = std::min(a_block, shown - first);
      text += fmt::format("stage {:>3}  {}\n", stage, table.rows[stage].substr(first * table.cell, count * table.cell));
    }
  }
  if (shown < table.columns) {
    text += fmt::format("(the first {} of {} columns; a column is one forward, a whole backward takes two)\n", shown,
                        table.columns);
  }
  return text;
}

}  // namespace megatron
