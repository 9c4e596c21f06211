// TensorBoardEvents: what metrics.jsonl gets, as event files of TensorBoard in the folder `tensorboard` of the run.
// Made of the lines themselves, so that the two never differ.
//
// Every program that trains the run begins a file, which says from which step on earlier files no longer hold: a run
// that resumes loses there what it loses in metrics.jsonl. Like MetricsWriter it never ends the run.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/log.h"
#include "base/system/record_file.h"
#include "monitoring/metrics/event_file.h"

namespace megatron {

/// The numbers of a line of metrics.jsonl by tag: "train/loss", "train/losses/NAME" (where there are several),
/// "validation/perplexity", "tasks/NAME/accuracy". null is NaN; of an array at most 64 elements, by number.
std::vector<TaggedScalar> scalars_of(const nlohmann::json& line);

class TensorBoardEvents {
 public:
  /// `directory`: the run's. `log` must outlive it. `lost`: the end of its warning where events cannot be written.
  TensorBoardEvents(std::string directory, Log& log,
                    std::string lost = "training continues, TensorBoard's events are lost");

  /// For a program that continues after `step` steps. `config`: shown as text.
  void begin(std::int64_t step, const std::string& config);
  /// A line as metrics.h writes it. Before begin() nothing happens.
  void add(const nlohmann::json& line);
  /// Whether all that was added has been written.
  bool complete() const { return complete_; }

 private:
  void append(const std::string& record);

  std::string folder_, lost_;
  Log& log_;
  std::unique_ptr<RecordFile> file_;
  bool complete_ = true;
};

/// For runs that have none, or lack some: all lines of `directory`/metrics.jsonl as one more event file, which takes
/// the place of those before it for every reader. Returns how many lines it has; warns of lines that cannot be read.
/// Errors: configuration where there are no metrics; data where no line can be read; filesystem.
std::int64_t rebuild_tensorboard(const std::string& directory, Log& log);

}  // namespace megatron
