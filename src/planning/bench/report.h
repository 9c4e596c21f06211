// Report: the numbers of a benchmark as text for people and as lines of JSON for scripts, both written from one
// description of each number. Knows nothing of what is measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace megatron {

struct Report {
  std::string text;
  nlohmann::json rows = nlohmann::json::array();  ///< objects

  std::string json() const;  ///< a line for each row
};

/// A number in the text and in the JSON.
struct ReportColumn {
  std::string heading = "";  ///< with the unit, where `unit` is empty; empty: not in the text
  std::string key = "";      ///< member of the JSON; empty: not in the JSON
  int decimals = 0;          ///< digits in the text, of all numbers but integers with scale 1
  double scale = 1;          ///< factor in the text: 1e3 for seconds that are printed as milliseconds
  std::string unit = "";     ///< follows the number in the text; a share in " %" is not printed where it is 0
};

/// Values of each column. Null: the row has none, neither in the text nor in the JSON.
using Row = std::vector<nlohmann::json>;

/// Columns next to each other under their headings. With a name the text begins with name and title, and each JSON row
/// has it as "case".
Report table(const std::string& name, const std::string& title, const std::vector<ReportColumn>& columns,
             const std::vector<Row>& rows);

struct Fact {
  ReportColumn column;
  nlohmann::json value;
};
/// A single row, of which the text has a line for each value.
Report list(const std::string& name, const std::string& title, const std::vector<Fact>& facts);

}  // namespace megatron
