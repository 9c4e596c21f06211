#include "training/loop/run_saves.h"

#include "base/core/timers.h"
#include "base/text/byte_text.h"
#include "base/text/foreign_json.h"
#include "checkpoint/store/files.h"
#include "checkpoint/store/folder.h"
#include "checkpoint/store/manifest.h"
#include "training/loop/recovery_advice.h"

namespace megatron {

nlohmann::json BestSave::state() const {
  return {{"step", step}, {"loss", loss}};
}

BestSave BestSave::from_state(const nlohmann::json& state) {
  return {integer_at(state, "step", 0, kStepLimit), number_at(state, "loss")};
}

RunSaves::RunSaves(const Config& config, Communicator& world, Trainer& trainer, RunLimits& limits, LossPlot& plot,
                   SavedStep& saved, Log& log)
    : directory_(config.run.directory),
      world_(world),
      trainer_(trainer),
      limits_(limits),
      plot_(plot),
      told_(saved),
      log_(log),
      last_(Timers::steady_seconds()) {}

void RunSaves::set_newest(const SavePoint& point) {
  saved_ = point;
  if (log_.enabled()) told_.set(point.step);
}

double RunSaves::seconds_since_last() const {
  return Timers::steady_seconds() - last_;
}

bool RunSaves::covers(const SavePoint& point) const {
  return has(point) || (writing_ && writing_->point == point);
}

bool RunSaves::is_there(std::int64_t step) const try {
  const std::string path = checkpoints_folder(directory_) + "/" + step_folder_name(step);
  return file_type(path + "/" + kManifestName) != FileType::absent;
} catch (const Error&) {
  return true;  // a file system that does not answer has not lost it
}

bool RunSaves::newest_is_there() {
  return any() && !world_.any_rank(world_.rank() == 0 && !is_there(saved_.step));
}

void RunSaves::resumed_with_best(const BestSave& best) {
  best_ = best;
  if (best.step < 0 || !world_.any_rank(world_.rank() == 0 && !is_there(best.step))) return;
  log_.warning(
      "the checkpoint of step {}, which had the lowest validation loss, {:.4f}, is gone; the next evaluation "
      "begins anew to look for the lowest",
      best.step, best.loss);
  best_ = {};
}

void RunSaves::look_again() {
  if (any() && !newest_is_there()) set_newest({});
}

bool RunSaves::working() const {
  BackgroundSave* const save = trainer_.background_save();
  return save != nullptr && save->working();
}

void RunSaves::done(const SaveReport& report, const SavePoint& point, const BestSave& best, const std::string& how) {
  set_newest(point);
  best_ = best;
  if (!log_.enabled()) return;
  for (const std::string& warning : report.warnings) log_.warning(std::string_view(warning));
  log_.info("saved {} ({} in {:.2f} s{})", report.path, format_bytes(static_cast<double>(report.bytes)), report.seconds,
            how);
  if (best.step == point.step) {
    log_.info("step {} has the lowest validation loss so far, {:.4f}: its checkpoint is kept", best.step, best.loss);
  }
  plot_.redraw();
}

void RunSaves::failed(const Error& error, const SavePoint& point) {
  if (error.kind() == ErrorKind::numerics) {
    fail(ErrorKind::numerics, "step {}: {}; {}", point.step, error.what(),
         recovery_advice(world_, directory_, point.step));
  }
  if (error.kind() != ErrorKind::filesystem || !any()) throw;
  const bool intact = newest_is_there();
  log_.warning("step {} is not saved: {}; training continues, the checkpoint of step {} {}", point.step, error.what(),
               saved_.step, intact ? "is intact" : "has been removed: there is none until the next save");
}

void RunSaves::save(const SavePoint& point, const nlohmann::json& loop, bool async, SaveOptions options,
                    const BestSave& best) {
  wait();
  options.best = best.step;
  try {
    if (async && trainer_.background_save() != nullptr) {
      start(point, loop, options, best);
    } else {
      save_at_once(point, loop, options, best);
    }
  } catch (const Error& error) {
    failed(error, point);
  }
  last_ = Timers::steady_seconds();  // an attempt that fails counts: the next is due as long after it
}

void RunSaves::save_at_once(const SavePoint& point, const nlohmann::json& loop, const SaveOptions& options,
                            const BestSave& best) {
  const SaveReport report = trainer_.save(directory_, loop, options);
  limits_.save_took(report.seconds);
  done(report, point, best, "");
}

void RunSaves::start(const SavePoint& point, const nlohmann::json& loop, const SaveOptions& options,
                     const BestSave& best) {
  const double start = Timers::steady_seconds();
  trainer_.start_save(directory_, loop, options);
  writing_ = {point, best, Timers::steady_seconds() - start};
}

void RunSaves::advance() {
  const double start = Timers::steady_seconds();
  try {
    const std::optional<SaveReport> report = trainer_.advance_save();
    writing_->stalled += Timers::steady_seconds() - start;
    if (!report) return;
    limits_.save_took(2 * report->seconds);  // a stop may have to wait for one and write another
    const double stalled = writing_->stalled + trainer_.background_save()->seconds_waited();
    done(*report, writing_->point, writing_->best,
         fmt::format(" in the background, for which training waited {:.3f} s", stalled));
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
