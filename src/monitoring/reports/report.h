// report.html: what became of a run, or how several compare, as one page that needs nothing else
// (monitoring/reports/html.h).
//
// Written by rank 0 at the end of a run, and by megatron_train --report from what is in the folders of any runs.
#pragma once

#include <string>
#include <vector>

#include "base/system/log.h"
#include "monitoring/reports/run_record.h"

namespace megatron {

/// The page for one run.
std::string run_report(const RunRecord& run);
/// The page that compares several.
std::string comparison_report(const std::vector<RunRecord>& runs);

/// Writes `directory`/report.html, for the process that trains there and has the curves of its metrics. Never ends the
/// run: what goes wrong is a warning.
void write_run_report(const std::string& directory, const RunCurves& curves, Log& log);

/// "Complete", "Running", "Ended without a record ...": how a run is doing, for people.
std::string status_of(const RunRecord& run);
/// Seconds that programs have trained this run, as far as it is recorded.
double trained_seconds(const RunRecord& run);

}  // namespace megatron
