#include "monitoring/reports/cleaning_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "monitoring/reports/html.h"

namespace megatron {

namespace {

using OrderedJson = nlohmann::ordered_json;

std::string shown(std::uint64_t count) {
  return html_number(static_cast<double>(count), 12);
}

std::uint64_t count_in(const OrderedJson& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_number_unsigned()
             ? object[name].get<std::uint64_t>()
             : 0;
}

std::string text_in(const OrderedJson& object, const char* name, const char* otherwise) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>()
                                                                                 : otherwise;
}

OrderedJson part_of(const OrderedJson& object, const char* name) {
  return object.is_object() && object.contains(name) ? object[name] : OrderedJson::object();
}

/// The steps in the order in which they were played: those of the inputs first.
void add_steps(const OrderedJson& report, std::vector<OrderedJson>& steps) {
  const OrderedJson earlier = part_of(report, "earlier");
  for (const OrderedJson& one : earlier) add_steps(one, steps);
  steps.push_back(report);
}

std::string name_of(const OrderedJson& report) {
  return text_in(report, "step", "?");
}

std::string overview(const std::vector<OrderedJson>& steps) {
  std::vector<HtmlRow> rows;
  for (const OrderedJson& step : steps) {
    const OrderedJson documents = part_of(step, "documents");
    const std::uint64_t read = count_in(documents, "read"), kept = count_in(documents, "kept");
    rows.push_back({name_of(step), shown(read), shown(kept),
                    read > 0 ? fmt::format("{:.1f}", 100 * static_cast<double>(kept) / static_cast<double>(read)) : "-",
                    shown(count_in(documents, "bad"))});
  }
  return html_table({"step", "read", "kept", "% kept", "bad, left out"}, rows);
}

/// Bars of the rules that met documents, and their examples, folded.
std::string rules(const OrderedJson& step, const char* group, const char* verb) {
  std::vector<HtmlBar> bars;
  std::string examples;
  const OrderedJson found = part_of(step, group);
  for (const auto& [name, rule] : found.items()) {
    const std::uint64_t count = count_in(rule, "documents");
    if (count == 0) continue;
    bars.push_back({fmt::format("{} by {}", verb, name), static_cast<double>(count), shown(count)});
    std::string lines;
    const OrderedJson list = part_of(rule, "examples");
    for (const OrderedJson& example : list) {
      lines += fmt::format("{}, byte {}\n    {}\n", text_in(example, "file", ""), count_in(example, "byte"),
                           text_in(example, "text", ""));
    }
    if (!lines.empty()) examples += html_folded(fmt::format("{}: examples", name), lines);
  }
  return html_bars(bars) + examples;
}

/// Facts of a step besides its rules, with the clusters of duplicates as bars.
std::string facts(const OrderedJson& step) {
  std::string out;
  for (const char* name : {"duplicates", "decontamination"}) {
    const OrderedJson found = part_of(step, name);
    std::vector<std::pair<std::string, std::string>> tiles;
    for (const auto& [key, value] : found.items()) {
      std::string words = key;
      std::replace(words.begin(), words.end(), '_', ' ');
      if (value.is_number_unsigned()) tiles.emplace_back(words, shown(value.get<std::uint64_t>()));
    }
    if (!tiles.empty()) out += html_tiles(tiles);
    std::vector<HtmlBar> bars;
    const OrderedJson sizes = part_of(found, "clusters_of_size");
    for (const auto& [size, count] : sizes.items()) {
      if (!count.is_number_unsigned()) continue;
      const auto clusters = count.get<std::uint64_t>();
      bars.push_back({"clusters of " + size, static_cast<double>(clusters), shown(clusters)});
    }
    out += html_bars(bars);
  }
  return out;
}

std::string lengths(const CleanedDocuments& documents) {
  std::vector<HtmlBar> bars;
  for (const auto& [power, count] : documents.lengths) {
    const std::uint64_t least = power < 0 ? 0 : std::uint64_t{1} << power;
    bars.push_back({power <= 0 ? fmt::format("{} characters", least) : fmt::format("{} to {}", least, 2 * least - 1),
                    static_cast<double>(count), shown(count)});
  }
  return html_bars(bars);
}

/// The most frequent languages, and the rest as one.
std::string languages(const CleanedDocuments& documents) {
  constexpr std::size_t kShown = 20;
  std::vector<std::pair<std::string, std::uint64_t>> all(documents.languages.begin(), documents.languages.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<HtmlBar> bars;
  std::uint64_t rest = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i >= kShown) rest += all[i].second;
    if (i >= kShown) continue;
    bars.push_back(
        {all[i].first == "un" ? "unknown" : all[i].first, static_cast<double>(all[i].second), shown(all[i].second)});
  }
  if (rest > 0) bars.push_back({"others", static_cast<double>(rest), shown(rest)});
  return html_bars(bars);
}

}  // namespace

std::string cleaning_page(const std::string& folder, const OrderedJson& report, const CleanedDocuments& documents) {
  std::vector<OrderedJson> steps;
  add_steps(report, steps);
  std::string body = html_section("Cleaning of " + folder, overview(steps));
  for (const OrderedJson& step : steps) {
    body += html_section(name_of(step),
                         rules(step, "removed", "removed") + rules(step, "changed", "changed") + facts(step));
  }
  body += html_section("Lengths of the documents that are left", lengths(documents));
  body += html_section("Languages of the documents that are left", languages(documents));
  return html_page("Cleaning of " + folder, body);
}

}  // namespace megatron
