#include "monitoring/reports/data_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/strict_json.h"
#include "monitoring/plots/svg.h"
#include "monitoring/reports/html.h"

namespace megatron {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kDeepest = 512;

/// The rules that removed most, such as "min_words 12, languages 3".
std::string removals(const Json& step) {
  constexpr std::size_t kShown = 3;
  std::vector<std::pair<std::string, std::uint64_t>> rules;
  for (const auto& [rule, count] : step.at("removed").items()) {
    if (count.get<std::uint64_t>() > 0) rules.emplace_back(rule, count.get<std::uint64_t>());
  }
  std::stable_sort(rules.begin(), rules.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> words;
  for (std::size_t i = 0; i < std::min(kShown, rules.size()); ++i) {
    words.push_back(fmt::format("{} {}", rules[i].first, rules[i].second));
  }
  if (rules.size() > kShown) words.emplace_back("others");
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::string data_origin(const std::string& json) try {
  std::string out;
  if (json.empty()) return out;
  const Json all = parse_strict_json(json, kDeepest);
  for (const auto& [prefix, origin] : all.items()) {
    for (const Json& steps : origin.at("steps")) {
      std::vector<HtmlRow> rows;
      for (const Json& step : steps) {
        rows.push_back({step.at("step").get<std::string>(), fmt::format("{}", step.at("read").get<std::uint64_t>()),
                        fmt::format("{}", step.at("kept").get<std::uint64_t>()), removals(step),
                        step.at("made_by").get<std::string>()});
      }
      out += fmt::format("<p>{}</p>\n", escaped(prefix)) +
             html_table({"step", "documents read", "kept", "removed most by", "made by"}, rows);
    }
  }
  return out;
} catch (const std::exception&) {
  return "<p class=\"soft\">provenance.json is not written as this version does it.</p>\n";
}

}  // namespace megatron
