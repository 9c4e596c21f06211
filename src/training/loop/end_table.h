// The table at the end of a run: where the time went, and memory and traffic against what was predicted.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/core/timers.h"
#include "monitoring/reports/history.h"

namespace megatron {

/// The report of one rank at the end of a run.
struct RankReport {
  std::array<double, kSectionCount> seconds{};  ///< by Section
  double peak_resident_bytes = 0;
  double planned_bytes = 0, used_bytes = 0;  ///< predicted, and what buffers really hold and arenas used: the same
  double sent_bytes = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport, seconds, peak_resident_bytes, planned_bytes, used_bytes, sent_bytes)

/// Time of each section, min / average / max over ranks and its share; then memory against prediction.
std::string end_table(const std::vector<RankReport>& ranks);

/// The rows of the table for history.jsonl; its time, step and reason are the caller's.
ProgramEnd end_facts(const std::vector<RankReport>& ranks);

}  // namespace megatron
