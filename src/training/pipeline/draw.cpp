// The drawing of schedules: draw_schedules() of simulate.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "training/pipeline/simulate.h"

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

constexpr std::size_t kMostStages = 8;  // more rows of idle dots are not looked at
constexpr std::size_t kSmallestCell = 3;

std::size_t column(double seconds) {
  return static_cast<std::size_t>(std::lround(seconds));
}

/// One row of characters a stage, `cell` to a unit of time.
struct Table {
  std::vector<std::string> rows;
  std::size_t cell = kSmallestCell;
};

/// The table of the actions that start within this number of columns.
Table make_table(const Schedules& schedules, const Simulation& simulation, std::size_t columns) {
  Table table;
  bool chunks = false;
  for (const auto& list : schedules) {
    for (const Action& action : list) chunks = chunks || action.chunk > 0;
  }
  const auto for_each = [&](std::size_t stage, auto visit) {
    for (std::size_t i = 0; i < schedules[stage].size(); ++i) {
      const auto [start, finish] = simulation.spans[stage][i];
      if (column(start) < columns) visit(name_of(schedules[stage][i], chunks), column(start), column(finish - start));
    }
  };
  for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
    for_each(stage, [&](const std::string& name, auto...) { table.cell = std::max(table.cell, name.size() + 1); });
  }
  for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
    std::string row;
    for (std::size_t i = 0; i < columns; ++i) row += fmt::format("{:<{}}", '.', table.cell);
    for_each(stage, [&](const std::string& name, std::size_t start, std::size_t length) {
      const std::size_t characters = table.cell * length - 1;
      row.replace(table.cell * start, characters, fmt::format("{:-<{}}", name, characters));
    });
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string draw_schedules(const Schedules& schedules, int width, int most_blocks) {
  if (schedules.size() > kMostStages) {
    return fmt::format("(not drawn: {} stages, and a drawing is readable up to {})\n", schedules.size(), kMostStages);
  }
  const Simulation simulation = simulate(schedules, {.sends = SendMode::buffered});
  if (simulation.deadlock) return "the schedule cannot be played:\n" + simulation.explanation;
  const std::size_t columns = column(simulation.makespan);
  const std::size_t label = fmt::formatted_size("stage {:>3}  ", 0);
  const auto fit = [&](std::size_t cell) {
    return (std::max(static_cast<std::size_t>(width), label + cell) - label) / cell;
  };
  const auto blocks = static_cast<std::size_t>(most_blocks);
  const Table table = make_table(schedules, simulation, std::min(columns, blocks * fit(kSmallestCell)));
  const std::size_t a_block = fit(table.cell), shown = std::min(columns, blocks * a_block);
  std::string text;
  for (std::size_t first = 0; first < shown; first += a_block) {
    if (first > 0) text += '\n';
    for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
      const std::size_t count = std::min(a_block, shown - first);
      text += fmt::format("stage {:>3}  {}\n", stage, table.rows[stage].substr(first * table.cell, count * table.cell));
    }
  }
  if (shown < columns) {
    text += fmt::format("(the first {} of {} columns; a column is one forward, a whole backward takes two)\n", shown,
                        columns);
  }
  return text;
}

}  // namespace megatron
