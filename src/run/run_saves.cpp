#include "run/run_saves.h"

#include "base/byte_text.h"
#include "base/timers.h"

namespace megatron {

RunSaves::RunSaves(const Config& config, Trainer& trainer, RunLimits& limits, LossPlot& plot, Log& log)
    : directory_(config.run.directory),
      trainer_(trainer),
      limits_(limits),
      plot_(plot),
      log_(log),
      last_(Timers::steady_seconds()) {}

double RunSaves::seconds_since_last() const {
  return Timers::steady_seconds() - last_;
}

bool RunSaves::covers(const SavePoint& point) const {
  return has(point) || (writing_ && writing_->point == point);
}

bool RunSaves::working() const {
  BackgroundSave* const save = trainer_.background_save();
  return save != nullptr && save->working();
}

void RunSaves::done(const SaveReport& report, const SavePoint& point, const std::string& how) {
  saved_ = point;
  if (!log_.speaking()) return;
  for (const std::string& warning : report.warnings) log_.warning(std::string_view(warning));
  log_.info("saved {} ({} in {:.2f} s{})", report.path, format_bytes(static_cast<double>(report.bytes)), report.seconds,
            how);
  plot_.redraw();
}

void RunSaves::failed(const Error& error, const SavePoint& point) {
  if (error.kind() != ErrorKind::filesystem || !any()) throw;
  log_.warning("step {} is not saved: {}; training goes on, the checkpoint of step {} is intact", point.step,
               error.what(), saved_.step);
}

void RunSaves::save(const SavePoint& point, const nlohmann::json& loop, bool beside) {
  wait();
  try {
    if (beside && trainer_.background_save() != nullptr) {
      start(point, loop);
    } else {
      save_at_once(point, loop);
    }
  } catch (const Error& error) {
    failed(error, point);
  }
  last_ = Timers::steady_seconds();  // an attempt that fails counts: the next is due as long after it
}

void RunSaves::save_at_once(const SavePoint& point, const nlohmann::json& loop) {
  const SaveReport report = trainer_.save(directory_, loop);
  limits_.save_took(report.seconds);
  done(report, point, "");
}

void RunSaves::start(const SavePoint& point, const nlohmann::json& loop) {
  const double start = Timers::steady_seconds();
  trainer_.start_save(directory_, loop);
  writing_ = {point, Timers::steady_seconds() - start};
}

void RunSaves::go_on() {
  const double start = Timers::steady_seconds();
  try {
    const std::optional<SaveReport> report = trainer_.go_on_with_save();
    writing_->stalled += Timers::steady_seconds() - start;
    if (!report) return;
    limits_.save_took(2 * report->seconds);  // a stop may have to wait for one and write another
    const double stalled = writing_->stalled + trainer_.background_save()->seconds_waited();
    done(*report, writing_->point, fmt::format(" beside the training, which waited {:.3f} s", stalled));
  } catch (const Error& error) {
    failed(error, writing_->point);
  }
  writing_.reset();
}

void RunSaves::wait() {
  if (!writing_) return;
  const double start = Timers::steady_seconds();
  const std::int64_t step = writing_->point.step;
  while (writing_) go_on();
  log_.info("waited {:.2f} s for the checkpoint of step {}, which was still being written",
            Timers::steady_seconds() - start, step);
}

}  // namespace megatron
