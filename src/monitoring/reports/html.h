// Parts of a report's page: one HTML file without scripts, pictures or addresses elsewhere, light or dark as the reader
// has it. All texts that come in are plain, and are escaped here.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megatron {

/// The whole file; `body` is HTML.
std::string html_page(const std::string& title, const std::string& body);

/// A heading and what stands below it; nothing where that is empty.
std::string html_section(const std::string& heading, const std::string& body);

/// A table whose first column names the rows. It scrolls within the page where the page is narrow.
using HtmlRow = std::vector<std::string>;
std::string html_table(const HtmlRow& heads, const std::vector<HtmlRow>& rows);

/// Numbers that matter most, each with what it is.
std::string html_tiles(const std::vector<std::pair<std::string, std::string>>& tiles);

struct HtmlBar {
  std::string name;
  double value = 0;  ///< its length, relative to the longest
  std::string text;
};
std::string html_bars(const std::vector<HtmlBar>& bars);

std::string html_list(const std::vector<std::string>& items);
/// Lines as they are, folded up under a summary.
std::string html_folded(const std::string& summary, const std::string& text);

/// "2026-11-23 14:49", in UTC; "-" for 0 or what is no time.
std::string html_time(double seconds_since_1970);
/// The shortest number with this many digits; "-" where there is none.
std::string html_number(double value, int digits = 5);

}  // namespace megatron
