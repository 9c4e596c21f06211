#include "training/loop/training_loop.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/system/memory_usage.h"
#include "config/schema/print.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"
#include "models/families/layers.h"
#include "models/families/moe_terms.h"
#include "monitoring/reports/report.h"
#include "training/loop/end_table.h"
#include "training/loop/expert_report.h"
#include "training/loop/recovery_advice.h"
#include "training/loop/skipped_steps.h"

namespace megatron {

namespace {

/// Numbers that ranks agree on after each step: the largest of each counts.
struct Votes {
  double request, saving, signal;
  std::span<double> span() { return {&request, 3}; }
};
static_assert(sizeof(Votes) == 3 * sizeof(double));

}  // namespace

TrainingLoop::TrainingLoop(const Config& config, const ProcessGrid& grid, Backend& backend, Datasets& datasets,
                           std::span<const TrainingTask> tasks, Log& log, StopSignals& signals,
                           const TimeLimits& time_limits, RunLock* lock)
    : config_(config),
      grid_(grid),
      world_(grid.world()),
      datasets_(datasets),
      log_(log),
      signals_(signals),
      lock_(lock),
      limits_(time_limits, config.run.directory),
      saved_step_(config.checkpoint.resume),
      trace_(config, grid, backend, log),
      trainer_(config, grid, backend, datasets),
      skips_(config.train.max_skipped_steps),
      outputs_(config, log),
      saves_(config, world_, trainer_, limits_, outputs_.plot, saved_step_, log),
      evaluations_(config, datasets, tasks, trainer_, outputs_, watch_),
      watch_(log, signals, passes_, saved_step_, config.train.steps) {
  passes_.pass_on_to(backend.ops->ranges());
  trainer_.timers().set_ranges(&passes_);
}

// By the clock of the rank that asks. Not while another save is being written: waiting for it would hold training up.
bool TrainingLoop::save_is_due() const {
  const double minutes = config_.checkpoint.minutes_between();
  return minutes > 0 && trainer_.step() > 0 && !saves_.under_way() && saves_.seconds_since_last() > 60 * minutes;
}

TrainingLoop::Request TrainingLoop::request() {
  if (stopping_) return Request::stop;
  Request mine = Request::none;
  if (world_.rank() == 0 && save_is_due()) mine = Request::save;
  if (world_.rank() == 0) stop_for_ = limits_.reached();
  if (signals_.received() != 0 || !stop_for_.empty()) mine = Request::stop;
  // A background save takes its steps when all ranks are ready for them, told by the same messages.
  Votes votes{static_cast<double>(mine), saves_.working() ? 1.0 : 0.0, static_cast<double>(signals_.received())};
  {
    const Timers::Scope scope(trainer_.timers(), Section::communication);
    const Range range(&passes_, "agreement to continue");
    grid_.agree(votes.span());
  }
  const auto agreed = static_cast<Request>(std::lround(votes.request));
  stopping_ = agreed == Request::stop;
  stop_signal_ = static_cast<int>(std::lround(votes.signal));
  if (!stopping_ && saves_.under_way() && votes.saving == 0) saves_.advance();
  return agreed;
}

// For the middle of an evaluation; a save that is due can wait for its end.
bool TrainingLoop::stop_requested() {
  return request() == Request::stop;
}

bool TrainingLoop::ends_interval(std::int64_t every) const {
  return trainer_.step() % every == 0 || trainer_.finished();
}

bool TrainingLoop::metrics_are_due() const {
  return trainer_.step() == 1 || ends_interval(config_.run.metrics_interval());
}

// The first step has a line in the metrics, and this process' first one on the screen, whatever the intervals.
void TrainingLoop::record(const StepResult& result, double seconds) {
  const FlopsPerToken flops = flops_per_token(
      config_.model, recomputed_layers(config_.model, config_.parallel, config_.recompute), result.batch.sequence);
  since_metrics_.add(result, seconds, flops);
  since_progress_.add(result, seconds, flops);
  if (result.experts.experts > 0 && !result.skipped) experts_.add(result.experts);
  if (metrics_are_due()) write_metrics(result);
  if (!progress_begun_ || ends_interval(config_.run.log_every) || trainer_.step() == config_.train.stop_after) {
    print_progress(result);
  }
}

void TrainingLoop::write_metrics(const StepResult& result) {
  const double loss = since_metrics_.loss(), per_rank = 1e-12 / grid_.shape().ranks();
  std::optional<ExpertMetrics> experts;
  if (result.experts.experts > 0) {
    experts = expert_metrics(with_agreed_gap(result.experts, grid_), expert_layer_names(config_.model));
  }
  if (log_.enabled()) {
    outputs_.metrics.write(
        TrainMetrics{.step = trainer_.step(),
                     .loss = loss,
                     .losses = named_losses(trainer_.loss_terms(), since_metrics_.loss_terms()),
                     .grad_norm = result.gradient_norm,
                     .learning_rate = result.learning_rate,
                     .parameter_norm = result.parameter_norm,
                     .samples = trainer_.samples(),
                     .tokens = trainer_.tokens(),
                     .epoch = epochs_of(trainer_.samples(), datasets_.facts()),
                     .global_batch_size = result.batch.samples,
                     .step_seconds = since_metrics_.step_seconds(),
                     .tokens_per_second = since_metrics_.tokens_per_second(),
                     .model_tflops_per_rank = per_rank * since_metrics_.flops_per_second().model,
                     .hardware_tflops_per_rank = per_rank * since_metrics_.flops_per_second().hardware,
                     .loss_scale = result.loss_scale,
                     .skipped = skips_.since_line(),
                     .experts = std::move(experts),
                     .time = wall_seconds()});
  }
  since_metrics_ = {};
  skips_.begin_line();
}

void TrainingLoop::print_progress(const StepResult& result) {
  if (log_.enabled()) {
    outputs_.progress.print({.step = trainer_.step(),
                             .loss = since_progress_.loss(),
                             .losses = named_losses(trainer_.loss_terms(), since_progress_.loss_terms()),
                             .grad_norm = result.gradient_norm,
                             .learning_rate = result.learning_rate,
                             .step_seconds = since_progress_.step_seconds(),
                             .tokens_per_second = since_progress_.tokens_per_second(),
                             .remaining_tokens = trainer_.remaining_tokens(),
                             .loss_scale = result.loss_scale,
                             .skipped = result.skipped});
  }
  since_progress_ = {};
  progress_begun_ = true;
}

void TrainingLoop::train_one_step() {
  trace_.before_step(trainer_.step() + 1);
  const double start = Timers::steady_seconds();
  passes_.begin_step(trainer_.next_step().samples / (config_.train.micro_batch_size * config_.parallel.data),
                     config_.parallel.virtual_stages, row_named(kSchedules, config_.parallel.schedule).splits_backward);
  watch_.begin_step(trainer_.step() + 1);
  const StepResult result = traced_step();
  const double seconds = Timers::steady_seconds() - start;
  watch_.end_step(seconds, result.loss,
                  seconds * trainer_.remaining_tokens() / static_cast<double>(result.batch.tokens()));
  observe_step(config_, world_, trainer_, skips_, result,
               trainer_.finished() || trainer_.step() == config_.train.stop_after, log_);
  // The next step may be longer, and may have to be played twice as well.
  limits_.step_took((Timers::steady_seconds() - start) *
                    std::max(1.0, trainer_.next_tokens() / static_cast<double>(result.batch.tokens())));
  record(result, seconds);
  if (const std::int64_t every = config_.train.check_replicas_every; every > 0 && trainer_.step() % every == 0) {
    check_replicas();
  }
  evaluations_.add_due();
  trace_.after_step(trainer_.step());
}

StepResult TrainingLoop::traced_step() {
  const Range range(&passes_, "step", trainer_.step() + 1);
  StepResult result = trainer_.train_step();
  if (config_.run.parameter_norm && metrics_are_due()) result.parameter_norm = trainer_.parameter_norm();
  return result;
}

void TrainingLoop::check_replicas() {
  if (checked_step_ == trainer_.step()) return;
  trainer_.check_replicas();
  checked_step_ = trainer_.step();
}

SavePoint TrainingLoop::here() const {
  return {trainer_.step(), evaluations_.due().size()};
}

void TrainingLoop::save() {
  if (saves_.covers(here())) return;
  saves_.wait();  // its result decides which checkpoint is the best
  watch_.begin("saving");
  agree(world_, [&] {
    if (lock_ != nullptr) lock_->hold();
  });
  if (config_.train.check_replicas_every > 0) check_replicas();  // so that it is good to continue from
  nlohmann::json state = skips_.state();
  evaluations_.write_state(state);
  state[kLossSinceLine] = since_metrics_.loss_state();
  SaveOptions options;
  if (skips_.in_a_row() > 0) options.nothing_learned_since = trainer_.step() - skips_.in_a_row();
  const BestSave best =
      has_new_best() ? BestSave{evaluations_.validated().step, evaluations_.validated().loss} : saves_.best();
  if (best.step >= 0) state[kBestState] = best.state();
  saves_.save(here(), state, !stopping_ && !trainer_.finished() && !stops_here(), options, best);
}

// Whether this step has been evaluated, with a lower loss than any that is saved. Losses that are not finite never are.
bool TrainingLoop::has_new_best() const {
  const RunEvaluations::Validated& validated = evaluations_.validated();
  if (!config_.checkpoint.keep_best || validated.step != trainer_.step()) return false;
  return grid_.agree(validated.loss < saves_.best().loss);  // hosts of different kinds may round differently
}

void TrainingLoop::save_last() {
  saves_.wait();
  saves_.look_again();
  save();
  if (saves_.has(here())) return;
  finish("ended, as the last step could not be saved");
  fail(ErrorKind::filesystem,
       "the last step, {}, could not be saved (see the warning above); make room, then run the same command again: it "
       "continues from step {}",
       trainer_.step(), saves_.newest_step());
}

int TrainingLoop::stop() {
  save_last();
  if (log_.enabled()) saved_step_.set_stopped();
  const std::string reason = stop_signal_ != 0 ? StopSignals::reason_for(stop_signal_) : stop_for_;
  log_.info("stopped on {} after step {}; {}run the same command again{} to continue", reason, trainer_.step(),
            stop_for_ == stop_file_path(config_.run.directory) ? "remove that file and " : "",
            config_.checkpoint.resume ? "" : " with checkpoint.resume = true");
  finish("stopped on " + reason);
  signals_.ignore_from_now_on();
  return kExitStoppedEarly;
}

bool TrainingLoop::stops_here() const {
  const std::int64_t last = config_.train.stop_after;
  return last > 0 && trainer_.step() >= last && !trainer_.finished() && evaluations_.due().empty();
}

int TrainingLoop::end() {
  const bool kept = !config_.checkpoint.never || saves_.any();  // no checkpoint of a stopped run may stay
  if (kept) {
    save_last();
  } else {
    trainer_.require_finite_parameters();
  }
  finish(skips_.in_a_row() > 0 ? "ended among skipped steps"
         : trainer_.finished() ? "complete"
                               : "ended at train.stop_after");
  require_learned(world_, config_.run.directory, trainer_.step(), skips_.in_a_row());
  if (!trainer_.finished()) {
    log_.info(
        "ended after step {} of {}, as train.stop_after = {} says; to continue, raise or remove it and run the same "
        "command again",
        trainer_.step(), config_.train.steps, config_.train.stop_after);
  }
  if (!kept) {
    log_.warning("the trained model is not kept: checkpoint.every_steps = \"never\"; {} has its metrics alone",
                 config_.run.directory);
  }
  return 0;
}

int TrainingLoop::run() {
  trainer_.timers().reset();
  if (log_.enabled() && config_.run.tensorboard) outputs_.events.begin(trainer_.step(), print_config(config_));
  if (config_.checkpoint.keep_best && !evaluations_.has_validation()) {
    log_.warning(
        "checkpoint.keep_best = true has nothing to compare: neither data.split nor data.validation gives a "
        "validation set");
  }
  if (trainer_.finished() && evaluations_.due().empty()) evaluations_.add_due();
  while (!stops_here() && (!trainer_.finished() || !evaluations_.due().empty())) {
    const Request request = this->request();
    if (request == Request::stop) return stop();
    if (request == Request::save) {
      save();
      if (stop_requested()) return stop();  // the time left was reckoned for one save, not for two and a step
    }
    if (evaluations_.due().empty()) train_one_step();
    if (!evaluations_.perform([this] { return stop_requested(); })) continue;  // to be stopped
    const std::int64_t step = trainer_.step(), every = config_.checkpoint.every_steps;
    const bool in_time = every > 0 && step > 0 && step % every == 0;
    if (!in_time && has_new_best()) saves_.wait();  // for one that may be better still
    if ((in_time || has_new_best()) && !trainer_.finished()) save();
  }
  return end();
}

void TrainingLoop::finish(const std::string& how) {
  watch_.begin("");
  RankReport mine;
  for (std::size_t i = 0; i < kSectionCount; ++i) mine.seconds[i] = trainer_.timers().seconds(static_cast<Section>(i));
  mine.peak_resident_bytes = static_cast<double>(peak_resident_bytes());
  MemoryUse used = trainer_.used();
  trace_.add_memory(used);
  mine.planned_bytes = static_cast<double>(trainer_.replica().plan().total());
  mine.used_bytes = static_cast<double>(used.total());
  mine.sent_bytes = static_cast<double>(trainer_.traffic().bytes_sent);
  const std::vector<RankReport> ranks = gather(world_, mine);
  const ExpertUse experts = with_agreed_gap(experts_, grid_);
  if (log_.enabled()) {
    outputs_.plot.redraw();
    ProgramEnd end = end_facts(ranks);
    end.time = wall_seconds();
    end.step = trainer_.step();
    end.skipped = skips_.in_all();
    end.how = how;
    add_to_history(config_.run.directory, history_line(end), log_);
  }
  trace_.finish();  // for the report
  if (!log_.enabled()) return;
  write_run_report(config_.run.directory, outputs_.curves, log_);
  log_.info(std::string_view(end_table(ranks)));
  if (experts.steps > 0) log_.info(std::string_view(expert_table(experts, expert_layer_names(config_.model))));
  if (skips_.in_all() > 0) {
    log_.info("skipped: {} of {} steps, since their loss or gradient was not finite", skips_.in_all(), trainer_.step());
  }
  log_.info("loss plot: {0}/loss.svg, report: {0}/report.html", config_.run.directory);
}

}  // namespace megatron
