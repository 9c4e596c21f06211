#include "monitoring/reports/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text/text.h"
#include "monitoring/plots/axis.h"
#include "monitoring/plots/chart.h"
#include "monitoring/plots/svg.h"
#include "monitoring/reports/schedule_drawing.h"

namespace megatron {

namespace {

constexpr const char* kPageStyle =
    R"(:root{color-scheme:light dark;--back:#fff;--panel:#f6f7f9;--text:#14181f;--soft:#525b68;--line:#d5dae1}
@media(prefers-color-scheme:dark){:root{--back:#14171c;--panel:#1c2128;--text:#e8ebf0;--soft:#a7b0bd;--line:#39414c}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--back);color:var(--text);font:16px/1.5 system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
h1{font-size:1.5rem;line-height:1.2;margin:.5rem 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
p{margin:.4rem 0;overflow-wrap:anywhere}
small,.soft{color:var(--soft);font-weight:400}
.soft{font-size:.875rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.tiles div{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.5rem .7rem;min-width:0;overflow-wrap:anywhere}
.tiles dt{font-size:.8125rem;color:var(--soft)}
.tiles dd{margin:0;font-size:1.15rem;font-weight:600;font-variant-numeric:tabular-nums}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.5rem 2rem}
.none{color:var(--soft)}
.wide{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{white-space:nowrap;padding:.25rem .8rem .25rem 0;text-align:right;border-bottom:1px solid var(--line);vertical-align:top}
th:first-child,td:first-child{text-align:left}
thead th{color:var(--soft);font-weight:600}
tbody th{font-weight:500}
table.words td,table.words th{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:6.5rem}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:.3rem .7rem;align-items:center;font-size:.875rem;max-width:44rem;margin:.3rem 0 1rem;font-variant-numeric:tabular-nums}
.bars i{display:block;height:.8rem;background:var(--soft);border-radius:2px;min-width:1px}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.7rem;overflow-x:auto;font-size:.8125rem;line-height:1.45}
summary{cursor:pointer}
ul.plain{padding-left:1.2rem;overflow-wrap:anywhere}
@media(max-width:32rem){th,td{padding-right:.45rem}}
@media print{body{max-width:none}details>*{display:block}}
)";

/// Escaped, with its line ends.
std::string escaped_lines(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    result += escaped(text.substr(at, end - at)) + '\n';
    at = end + 1;
  }
  return result;
}

bool is_number(const std::string& text) {
  return text.empty() || text == "-" || std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-';
}

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{}{}{}"
      "</style></head>\n<body>\n{}</body></html>\n",
      escaped(title), kPageStyle, chart_style(), schedule_style(), body);
}

std::string html_section(const std::string& heading, const std::string& body) {
  return body.empty() ? "" : fmt::format("<section><h2>{}</h2>\n{}</section>\n", escaped(heading), body);
}

std::string html_table(const HtmlRow& heads, const std::vector<HtmlRow>& rows) {
  if (rows.empty()) return "";
  bool numbers = true;  // else its cells are words, and begin at the left
  for (const HtmlRow& row : rows) {
    for (std::size_t i = 1; i < row.size(); ++i) numbers = numbers && is_number(row[i]);
  }
  std::string out = fmt::format("<div class=\"wide\"><table{}><thead><tr>", numbers ? "" : " class=\"words\"");
  for (const std::string& head : heads) out += fmt::format("<th>{}</th>", escaped(head));
  out += "</tr></thead><tbody>\n";
  for (const HtmlRow& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += i == 0 ? fmt::format("<th>{}</th>", escaped(row[i])) : fmt::format("<td>{}</td>", escaped(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_tiles(const std::vector<std::pair<std::string, std::string>>& tiles) {
  std::string out = "<dl class=\"tiles\">";
  for (const auto& [name, value] : tiles) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
  }
  return out + "</dl>\n";
}

std::string html_bars(const std::vector<HtmlBar>& bars) {
  double most = 0;
  for (const HtmlBar& bar : bars) most = std::max(most, bar.value);
  std::string out = "<div class=\"bars\">";
  for (const HtmlBar& bar : bars) {
    out += fmt::format("<span>{}</span><i style=\"width:{:.1f}%\"></i><span>{}</span>\n", escaped(bar.name),
                       most > 0 ? 100 * std::max(0.0, bar.value) / most : 0, escaped(bar.text));
  }
  return bars.empty() ? "" : out + "</div>\n";
}

std::string html_list(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += fmt::format("<li>{}</li>\n", escaped(item));
  return items.empty() ? "" : "<ul class=\"plain\">" + out + "</ul>\n";
}

std::string html_folded(const std::string& summary, const std::string& text) {
  return fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escaped(summary), escaped_lines(text));
}

std::string html_time(double seconds_since_1970) {
  if (!(seconds_since_1970 > 0 && seconds_since_1970 < 1e11)) return "-";
  const auto time = static_cast<std::time_t>(seconds_since_1970);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  return fmt::format("{}-{:02}-{:02} {:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                     parts.tm_min);
}

std::string html_number(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  return std::abs(value) >= 1000 && std::abs(value) < 1e12 ? tick_label(std::round(value))
                                                           : fmt::format("{:.{}g}", value, digits);
}

}  // namespace megatron
