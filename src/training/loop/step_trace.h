// StepTrace: records the steps of run.trace_steps on every rank and writes them to trace.json of the run's directory,
// on one clock. Its functions are collective over all ranks. A file that cannot be written is a warning: the run
// continues without it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/ops/device.h"
#include "base/core/trace_recorder.h"
#include "base/system/log.h"
#include "config/schema/config.h"
#include "distributed/comm/clock_offset.h"
#include "distributed/comm/process_grid.h"
#include "training/step/memory_plan.h"

namespace megatron {

class StepTrace {
 public:
  /// Where steps are to be traced, the backend's operations are recorded from now on: before others refer to them.
  StepTrace(const Config& config, const ProcessGrid& grid, Backend& backend, Log& log,
            const TraceRecorder::Clock& clock = TraceRecorder::steady_nanoseconds);

  /// Writes the file if the steps have been recorded. A run that was asked to stop does not come here: it saves first.
  void before_step(std::int64_t step);
  void after_step(std::int64_t step);
  /// The program ends: writes what has been recorded and not been written.
  void finish();

  void add_memory(MemoryUse& used) const {
    if (recorder_) used.add_trace(recorder_->bytes(), !times_of_launches_);
  }

 private:
  struct Row;
  struct Table;
  void write();
  std::int64_t align(std::int64_t time) const;
  Row own_row() const;
  /// The other rank of a message from this rank to a stage, or from there.
  int other_rank(int stage) const;
  std::string place() const;
  void add_own(const std::function<void(const std::string&)>& piece, const Table& table) const;
  void write_file(const Table& table);

  const ProcessGrid& grid_;
  Communicator& world_;
  Log& log_;
  const std::string path_;
  const bool times_of_launches_;
  const std::int64_t first_, last_;  // to be traced; 0: none
  std::shared_ptr<TraceRecorder> recorder_;
  ClockOffset before_, after_;              // measured before and after the steps
  std::int64_t began_ = 0;                  // by this rank's clock
  std::int64_t first_step_ = 0, step_ = 0;  // recorded and not written; first_step_ = 0: none
};

}  // namespace megatron
