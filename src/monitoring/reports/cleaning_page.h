// The page about a cleaned corpus: what each step has removed and changed, with examples, clusters of duplicates, and
// lengths and languages of the documents that are left. Written by megatron_clean report.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace megatron {

/// Documents that are left.
struct CleanedDocuments {
  std::map<int, std::uint64_t> lengths;            ///< by n: of 2^n to 2^(n+1) - 1 characters; -1: of none
  std::map<std::string, std::uint64_t> languages;  ///< by code; empty if they were not found out
};

/// The whole file. `report`: the report.json of the last step, with those before it under "earlier".
std::string cleaning_page(const std::string& folder, const nlohmann::ordered_json& report,
                          const CleanedDocuments& documents);

}  // namespace megatron
