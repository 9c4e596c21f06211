// Findings: how often each rule of a step removed a document or changed one, with the first examples in the order of
// the input. Parts of a corpus are counted apart, and appended in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A rule, as reports name it.
struct Rule {
  std::string name;     ///< "min_characters"
  bool removes = true;  ///< the document; else it changes it
};

struct Example {
  std::string path;
  std::uint64_t offset = 0;  ///< the beginning of its line in the file, unpacked
  std::string text;          ///< its beginning
};

struct Finding {
  std::uint64_t count = 0;
  std::vector<Example> examples;
};

class Findings {
 public:
  Findings() = default;
  /// `most`: examples of each rule that are kept.
  Findings(std::size_t rules, std::uint64_t most) : all_(rules), most_(most) {}

  void add(std::size_t rule, const std::string& path, std::uint64_t offset, std::string_view text);
  /// Counts of a later part.
  void append(const Findings& later);
  const Finding& operator[](std::size_t rule) const { return all_[rule]; }

  /// {"removed": {NAME: {"documents": N, "examples": [...]}}, "changed": {...}}; rules that found nothing too.
  nlohmann::ordered_json report(const std::vector<Rule>& rules) const;
  /// {"removed": {NAME: N}, "changed": {NAME: N}}.
  nlohmann::ordered_json counts(const std::vector<Rule>& rules) const;

 private:
  friend void to_json(nlohmann::json& json, const Findings& findings);
  friend void from_json(const nlohmann::json& json, Findings& findings);
  std::vector<Finding> all_;
  std::uint64_t most_ = 0;
};

}  // namespace megatron
