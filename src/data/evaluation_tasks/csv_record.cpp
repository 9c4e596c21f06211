#include "data/evaluation_tasks/csv_record.h"

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

namespace {

/// Takes the cell that `text` begins with, up to its comma or line end; false if its quote is not closed.
bool take_cell(std::string_view& text, std::string& cell) {
  cell.clear();
  if (!text.starts_with('"')) {
    const std::size_t end = std::min(text.size(), text.find_first_of(",\n"));
    cell = text.substr(0, end);
    if (cell.ends_with('\r')) cell.pop_back();
    text.remove_prefix(end);
    return true;
  }
  text.remove_prefix(1);
  while (true) {
    const std::size_t quote = text.find('"');
    if (quote == std::string_view::npos) return false;
    cell += text.substr(0, quote);
    text.remove_prefix(quote + 1);
    if (!text.starts_with('"')) break;
    cell += '"';
    text.remove_prefix(1);
  }
  if (text.starts_with('\r')) text.remove_prefix(1);
  return text.empty() || text.front() == ',' || text.front() == '\n';
}

}  // namespace

void visit_csv(const TaskInput& input, std::size_t columns,
               const std::function<void(const ExampleLine& line, const std::vector<std::string>& cells)>& take) {
  std::string_view rest = checked_utf8(input);
  bool any = false;
  for (std::int64_t number = 1; !rest.empty();) {
    const std::string_view record = rest;
    const auto line = [&] { return ExampleLine{input, record.substr(0, record.size() - rest.size()), number}; };
    std::vector<std::string> cells(1);
    bool whole = take_cell(rest, cells.back());
    while (whole && rest.starts_with(',')) {
      rest.remove_prefix(1);
      whole = take_cell(rest, cells.emplace_back());
    }
    if (!whole) line().refuse("a cell whose quote is not closed, or that has text behind its quote");
    if (rest.starts_with('\n')) rest.remove_prefix(1);
    const std::string_view text = line().text;
    if (!without_leading_space(text).empty()) {
      if (cells.size() != columns) {
        line().refuse(fmt::format("{} comma-separated cells, and {} are right (MMLU: question, 4 choices, letter)",
                                  cells.size(), columns));
      }
      any = true;
      take(line(), cells);
    }
    number += std::count(text.begin(), text.end(), '\n');
  }
  verify(any, ErrorKind::data, "{} has no examples: it is empty", input.path);
}

}  // namespace megatron
