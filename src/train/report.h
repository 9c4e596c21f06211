// What a run says about itself: the banner before the first step and the table after the last, and the plan that
// --dry-run prints. Text only; the numbers come from the program's own plan, timers and meters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/byte_text.h"
#include "base/timers.h"
#include "train/replica.h"

namespace megatron {

/// One plan per pipeline stage, of its first rank, in order. The others hold the same, but for what each saves (some
/// numbers more or less in a snapshot).
std::vector<MemoryPlan> plan_stages(const Config& config, const GridShape& shape);

/// The grid of a resolved configuration.
GridShape grid_shape(const Config& config);

/// What a rank has resident besides what its plan says: program, libraries and what they take for themselves, MPI's
/// and matrix products' among it. More ranks, threads and checkpoint.async take more. Measured with 1 to 8 ranks on one
/// Debian 12 machine (Open MPI 4.1.4, oneDNN 2.6): 43 to 80 MiB.
inline constexpr double kLeastProgramBytes = 40 << 20, kMostProgramBytes = 80 << 20;
/// "40 to 80 MiB".
std::string program_bytes();

/// Lines of more than 100 characters are continued below, ten columns to the right; for lines that begin with a word.
std::string wrapped(const std::string& text);
/// "1 rank", "8 ranks".
std::string counted(std::int64_t count, std::string_view noun);

/// Share of a step, the largest one, in which a stage does not compute, if all are equally fast.
double bubble_fraction(const Config& config);

/// Grid with rank order, layers and parameters of each stage, batch arithmetic, schedule with its bubble, and predicted
/// memory: the same text in a run's banner and in --dry-run.
std::string describe_plan(const Config& config, const std::vector<MemoryPlan>& stages);

/// What one rank reports at the end of a run.
struct RankReport {
  std::array<double, kSectionCount> seconds{};  ///< by Section
  double peak_resident_bytes = 0;
  double planned_bytes = 0, used_bytes = 0;  ///< predicted, and what buffers really hold and arenas used: the same
  double sent_bytes = 0;

  std::string to_text() const;
  static RankReport from_text(const std::string& text);
};

/// Time of each section, min / average / max over ranks and its share; then memory against prediction.
std::string end_table(const std::vector<RankReport>& ranks);

}  // namespace megatron
