#include "run/run_saves.h"

#include "base/timers.h"
#include "checkpoint/files.h"
#include "checkpoint/folder.h"
#include "run/way_back.h"
#include "text/byte_text.h"

namespace megatron {

RunSaves::RunSaves(const Config& config, Communicator& world, Trainer& trainer, RunLimits& limits, LossPlot& plot,
                   Log& log)
    : directory_(config.run.directory),
      world_(world),
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

bool RunSaves::newest_is_there() {
  const auto there = [&] {
    try {
      const std::string path = checkpoints_folder(directory_) + "/" + step_folder_name(saved_.step);
      return file_type(path + "/" + kManifestName) != FileType::absent;
    } catch (const Error&) {
      return true;  // a file system that does not answer has not lost it
    }
  };
  return any() && !world_.any_rank(world_.rank() == 0 && !there());
}

void RunSaves::look_again() {
  if (any() && !newest_is_there()) saved_ = {};
}

bool RunSaves::working() const {
  BackgroundSave* const save = trainer_.background_save();
  return save != nullptr && save->working();
}

void RunSaves::done(const SaveReport& report, const SavePoint& point, const std::string& how) {
  saved_ = point;
  if (!log_.enabled()) return;
  for (const std::string& warning : report.warnings) log_.warning(std::string_view(warning));
  log_.info("saved {} ({} in {:.2f} s{})", report.path, format_bytes(static_cast<double>(report.bytes)), report.seconds,
            how);
  plot_.redraw();
}

void RunSaves::failed(const Error& error, const SavePoint& point) {
  if (error.kind() == ErrorKind::numerics) {
    fail(ErrorKind::numerics, "step {}: {}; {}", point.step, error.what(), way_back(world_, directory_, point.step));
  }
  if (error.kind() != ErrorKind::filesystem || !any()) throw;
  const bool intact = newest_is_there();
  log_.warning("step {} is not saved: {}; training continues, the checkpoint of step {} {}", point.step, error.what(),
               saved_.step, intact ? "is intact" : "has been removed: there is none until the next save");
}

void RunSaves::save(const SavePoint& point, const nlohmann::json& loop, bool async, const SaveOptions& options) {
  wait();
  try {
    if (async && trainer_.background_save() != nullptr) {
      start(point, loop, options);
    } else {
      save_at_once(point, loop, options);
    }
  } catch (const Error& error) {
    failed(error, point);
  }
  last_ = Timers::steady_seconds();  // an attempt that fails counts: the next is due as long after it
}

void RunSaves::save_at_once(const SavePoint& point, const nlohmann::json& loop, const SaveOptions& options) {
  const SaveReport report = trainer_.save(directory_, loop, options);
  limits_.save_took(report.seconds);
  done(report, point, "");
}

void RunSaves::start(const SavePoint& point, const nlohmann::json& loop, const SaveOptions& options) {
  const double start = Timers::steady_seconds();
  trainer_.start_save(directory_, loop, options);
  writing_ = {point, Timers::steady_seconds() - start};
}

void RunSaves::advance() {
  const double start = Timers::steady_seconds();
  try {
    const std::optional<SaveReport> report = trainer_.advance_save();
    writing_->stalled += Timers::steady_seconds() - start;
    if (!report) return;
    limits_.save_took(2 * report->seconds);  // a stop may have to wait for one and write another
    const double stalled = writing_->stalled + trainer_.background_save()->seconds_waited();
    done(*report, writing_->point, fmt::format(" in the background, for which training waited {:.3f} s", stalled));
  } catch (const Error& error) {
    failed(error, writing_->point);
  }
  writing_.reset();
}

void RunSaves::wait() {
  if (!writing_) return;
  const double start = Timers::steady_seconds();
  const std::int64_t step = writing_->point.step;
  while (writing_) advance();
  log_.info("waited {:.2f} s for the checkpoint of step {}, which was still being written",
            Timers::steady_seconds() - start, step);
}

}  // namespace megatron
