#include "planning/bench/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatron {

namespace {

std::string text_of(const ReportColumn& column, const nlohmann::json& value) {
  if (value.is_null() || (column.unit.starts_with(" %") && value == 0)) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer() && column.scale == 1) return value.dump() + column.unit;
  return fmt::format("{:.{}f}{}", column.scale * value.get<double>(), column.decimals, column.unit);
}

Report begin(const std::string& name, const std::string& title) {
  return {.text = name.empty() ? "" : fmt::format("{}: {}\n", name, title)};
}

void add(nlohmann::json& row, const ReportColumn& column, const nlohmann::json& value) {
  if (!column.key.empty() && !value.is_null()) row[column.key] = value;
}

nlohmann::json new_row(const std::string& name) {
  nlohmann::json row = nlohmann::json::object();
  if (!name.empty()) row["case"] = name;
  return row;
}

}  // namespace

std::string Report::json() const {
  std::string lines;
  for (const nlohmann::json& row : rows) lines += row.dump() + '\n';
  return lines;
}

Report table(const std::string& name, const std::string& title, const std::vector<ReportColumn>& columns,
             const std::vector<Row>& rows) {
  Report report = begin(name, title);
  report.rows.insert(report.rows.end(), rows.size(), new_row(name));
  std::vector<std::string> lines(rows.size() + 1);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const ReportColumn& column = columns[i];
    std::vector<std::string> cells = {column.heading};
    std::size_t width = column.heading.size();
    bool words = false;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const nlohmann::json& value = rows[row].at(i);
      add(report.rows[row], column, value);
      cells.push_back(text_of(column, value));
      width = std::max(width, cells.back().size());
      words = words || value.is_string();
    }
    if (column.heading.empty()) continue;
    for (std::size_t line = 0; line < lines.size(); ++line) {
      lines[line] += words ? fmt::format("  {:<{}}", cells[line], width) : fmt::format("  {:>{}}", cells[line], width);
    }
  }
  for (const std::string& line : lines) report.text += line + '\n';
  return report;
}

Report list(const std::string& name, const std::string& title, const std::vector<Fact>& facts) {
  Report report = begin(name, title);
  report.rows.push_back(new_row(name));
  std::size_t width = 0;
  for (const auto& [column, value] : facts) width = std::max(width, column.heading.size());
  for (const auto& [column, value] : facts) {
    add(report.rows[0], column, value);
    const std::string text = text_of(column, value);
    if (!column.heading.empty() && !text.empty()) {
      report.text += fmt::format("  {:<{}}  {}\n", column.heading, width, text);
    }
  }
  return report;
}

}  // namespace megatron
