#include "data/cleaning_steps/findings.h"

#include "base/text/characters.h"
#include "base/text/text.h"

namespace megatron {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Example, path, offset, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, count, examples)

namespace {

constexpr std::size_t kShownCharacters = 120;

nlohmann::ordered_json& group_of(nlohmann::ordered_json& json, const Rule& rule) {
  return json[rule.removes ? "removed" : "changed"];
}

nlohmann::ordered_json groups() {
  return {{"removed", nlohmann::ordered_json::object()}, {"changed", nlohmann::ordered_json::object()}};
}

}  // namespace

void to_json(nlohmann::json& json, const Findings& findings) {
  json = {{"all", findings.all_}, {"most", findings.most_}};
}

void from_json(const nlohmann::json& json, Findings& findings) {
  json.at("all").get_to(findings.all_);
  json.at("most").get_to(findings.most_);
}

void Findings::add(std::size_t rule, const std::string& path, std::uint64_t offset, std::string_view text) {
  Finding& finding = all_[rule];
  ++finding.count;
  if (finding.examples.size() >= most_) return;
  finding.examples.push_back({path, offset, printable(first_characters(text, kShownCharacters))});
}

void Findings::append(const Findings& later) {
  for (std::size_t rule = 0; rule < all_.size() && rule < later.all_.size(); ++rule) {
    Finding& finding = all_[rule];
    finding.count += later.all_[rule].count;
    for (const Example& example : later.all_[rule].examples) {
      if (finding.examples.size() < most_) finding.examples.push_back(example);
    }
  }
}

nlohmann::ordered_json Findings::report(const std::vector<Rule>& rules) const {
  nlohmann::ordered_json json = groups();
  for (std::size_t i = 0; i < rules.size(); ++i) {
    nlohmann::ordered_json examples = nlohmann::ordered_json::array();
    for (const Example& example : all_[i].examples) {
      examples.push_back({{"file", example.path}, {"byte", example.offset}, {"text", example.text}});
    }
    group_of(json, rules[i])[rules[i].name] = {{"documents", all_[i].count}, {"examples", examples}};
  }
  return json;
}

nlohmann::ordered_json Findings::counts(const std::vector<Rule>& rules) const {
  nlohmann::ordered_json json = groups();
  for (std::size_t i = 0; i < rules.size(); ++i) group_of(json, rules[i])[rules[i].name] = all_[i].count;
  return json;
}

}  // namespace megatron
