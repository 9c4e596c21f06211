#include "run/training_loop.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "checkpoint/manifest.h"
#include "comm/agreement.h"
#include "config/print.h"
#include "evaluation/result_text.h"
#include "model/layers.h"
#include "run/end_table.h"
#include "run/skipped_steps.h"
#include "run/way_back.h"
#include "system/memory_usage.h"
#include "train/compatibility.h"

namespace megatron {

namespace {

// In a checkpoint's loop state: what it has yet to be evaluated on, and of which samples evaluations are.
constexpr const char *kEvaluationsDue = "evaluations_due", *kEvaluatedOn = "evaluated_on";
// The loss since the last line of the metrics, so that the next line is the same after a resume.
constexpr const char* kLossSinceLine = "loss_since_line";

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TrainingLoop::TrainingLoop(const Config& config, const ProcessGrid& grid, Backend& backend, Datasets& datasets,
                           std::span<const TrainingTask> tasks, Log& log, StopSignals& signals,
                           const TimeLimits& time_limits, RunLock* lock)
    : config_(config),
      grid_(grid),
      world_(grid.world()),
      datasets_(datasets),
      tasks_(tasks),
      log_(log),
      signals_(signals),
      lock_(lock),
      limits_(time_limits, config.run.directory),
      trainer_(config, grid, backend, datasets),
      skips_(config.train.max_skipped_steps),
      metrics_(config.run.directory + "/metrics.jsonl", log),
      progress_(log, config.train.steps),
      plot_(config.run.directory, config.run.directory, log),
      saves_(config, world_, trainer_, limits_, plot_, log),
      watch_(log, signals, passes_, config.train.steps) {
  passes_.pass_on_to(backend.ops->ranges());
  trainer_.timers().set_ranges(&passes_);
}

// A run continues in the order it began with, or says that it does not.
void TrainingLoop::check_order(const CheckpointReader& checkpoint, bool own) {
  std::uint64_t data_hash = 0;
  read_state(checkpoint, [&](const nlohmann::json& extra) { data_hash = extra.at("data_hash").get<std::uint64_t>(); });
  const bool same_data = data_hash == datasets_.train_hash();
  const std::string changes = list_of(data_order_mismatches(trainer_.changed_order(checkpoint), same_data));
  if (changes.empty()) return;
  verify(!own, ErrorKind::checkpoint,
         "{}: the order of samples would change in the middle of the run, because it depends on these; resume with the "
         "same (with Megatron's orders, data.order_samples keeps the order where the run's length changes), or "
         "start a new run.directory with this one as checkpoint.load, which takes the new order from here on:{}",
         checkpoint.path(), changes);
  log_.warning(
      "the samples from here on are in another order than the checkpoint's run had; some of a pass come again, "
      "others not at all:{}",
      changes);
}

void TrainingLoop::resume_from(const CheckpointReader& checkpoint, const std::string& chosen_by) {
  const nlohmann::json loop = trainer_.resume(checkpoint, chosen_by);
  std::string saved_config, evaluations;
  std::uint64_t data_hash = 0;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    skips_.set_state(loop, trainer_.step());
    const bool own = chosen_by == "run.directory";  // another run's lines are not in this run's metrics
    if (own && loop.contains(kLossSinceLine)) since_metrics_.set_loss_state(object_at(loop, kLossSinceLine));
    evaluations_due_ = loop.value(kEvaluationsDue, std::vector<std::string>());
    for (const std::string& name : evaluations_due_) {
      verify(name == "validation" || name == "test" || name.starts_with(kTaskDue), ErrorKind::checkpoint,
             "an evaluation on \"{}\" is due", name);
    }
    std::erase_if(evaluations_due_, [&](const std::string& name) {  // those of tasks that the run no longer has
      return name.starts_with(kTaskDue) && find_task(name) == nullptr;
    });
    if (loop.contains(kEvaluatedOn)) {
      evaluations = list_of(changed_evaluations(object_at(loop, kEvaluatedOn), evaluation_facts(datasets_, tasks_)));
    }
    saved_config = extra.at("config").get<std::string>();
    data_hash = extra.at("data_hash").get<std::uint64_t>();
  });
  log_.info("resuming from {} at step {}", checkpoint.path(), trainer_.step());
  for (const std::string& change : changed_keys(saved_config, config_)) {
    log_.info("  changed since the checkpoint: {}", change);
  }
  if (data_hash != datasets_.train_hash()) {
    log_.warning("data.train holds other tokens than when the checkpoint was written; the samples that follow differ");
  }
  if (!evaluations.empty()) {
    log_.warning("evaluations are of other samples than before: losses from here on do not compare with those:{}",
                 evaluations);
  }
  if (trainer_.finished()) log_.info("nothing is left to train: step {} of {}", trainer_.step(), config_.train.steps);
}

void TrainingLoop::load(const std::optional<CheckpointReader>& own) {
  watch_.begin("loading");
  std::vector<std::string> warnings;
  const CheckpointConfig& checkpoint = config_.checkpoint;
  if (own) {
    check_order(*own, true);
    resume_from(*own, "run.directory");
    saves_.resumed_at(here());
  } else if (!checkpoint.load.empty()) {
    const CheckpointReader other = open_named_checkpoint(world_, checkpoint.load, warnings);
    check_order(other, false);
    resume_from(other, "checkpoint.load");
  } else if (!checkpoint.initialize_from.empty()) {
    const CheckpointReader other = open_named_checkpoint(world_, checkpoint.initialize_from, warnings);
    const std::vector<FactDifference> changes = trainer_.initialize_from(other);
    log_.info("weights from {}", other.path());
    for (const FactDifference& change : changes) {
      log_.info("  of a model with {} = {}, this run's has {}", change.key, change.saved, change.current);
    }
  }
  for (const std::string& warning : warnings) log_.warning(std::string_view(warning));
}

TrainingLoop::Request TrainingLoop::request() {
  if (stopping_) return Request::stop;
  Request mine = Request::none;
  const double minutes = config_.checkpoint.every_minutes;
  if (world_.rank() == 0 && minutes > 0 && saves_.seconds_since_last() > 60 * minutes) mine = Request::save;
  if (world_.rank() == 0) stop_for_ = limits_.reached();
  if (signals_.received() != 0 || !stop_for_.empty()) mine = Request::stop;
  // A background save takes its steps when all ranks are ready for them, told by the same messages.
  std::array<double, 3> wishes = {static_cast<double>(mine), saves_.working() ? 1.0 : 0.0,
                                  static_cast<double>(signals_.received())};
  {
    const Timers::Scope scope(trainer_.timers(), Section::communication);
    grid_.agree(wishes);
  }
  const auto agreed = static_cast<Request>(std::lround(wishes[0]));
  stopping_ = agreed == Request::stop;
  stop_signal_ = static_cast<int>(std::lround(wishes[2]));
  if (!stopping_ && saves_.under_way() && wishes[1] == 0) saves_.advance();
  return agreed;
}

// For the middle of an evaluation; a save that is due can wait for its end.
bool TrainingLoop::stop_requested() {
  return request() == Request::stop;
}

// The first step has a line in the metrics, and this process' first one on the screen, whatever the intervals.
void TrainingLoop::record(const StepResult& result, double seconds) {
  const FlopsPerToken flops = flops_per_token(
      config_.model, recomputed_layers(config_.model, config_.parallel, config_.recompute), result.batch.sequence);
  since_metrics_.add(result, seconds, flops);
  since_progress_.add(result, seconds, flops);
  const std::int64_t step = trainer_.step();
  const auto due = [&](std::int64_t every) { return step % every == 0 || trainer_.finished(); };
  if (step == 1 || due(config_.run.metrics_interval())) write_metrics(result);
  if (!progress_begun_ || due(config_.run.log_every) || step == config_.train.stop_after) print_progress(result);
}

void TrainingLoop::write_metrics(const StepResult& result) {
  const double loss = since_metrics_.loss(), per_rank = 1e-12 / grid_.shape().ranks();
  if (log_.enabled()) {
    metrics_.write(TrainMetrics{.step = trainer_.step(),
                                .loss = loss,
                                .losses = named_losses(trainer_.loss_terms(), since_metrics_.loss_terms()),
                                .grad_norm = result.gradient_norm,
                                .learning_rate = result.learning_rate,
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
                                .time = wall_seconds()});
  }
  since_metrics_ = {};
  skips_.begin_line();
}

void TrainingLoop::print_progress(const StepResult& result) {
  if (log_.enabled()) {
    progress_.print({.step = trainer_.step(),
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

bool TrainingLoop::evaluation_follows(std::int64_t step) const {
  const DataFacts data = datasets_.facts();
  return evaluations_within(config_, data, step) > evaluations_within(config_, data, step - 1);
}

void TrainingLoop::train_one_step() {
  const double start = Timers::steady_seconds();
  passes_.begin_step(trainer_.next_step().samples / (config_.train.micro_batch_size * config_.parallel.data),
                     config_.parallel.virtual_stages, row_named(kSchedules, config_.parallel.schedule).splits_backward);
  watch_.begin_step(trainer_.step() + 1);
  const StepResult result = trainer_.train_step();
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
  evaluations_due_ = evaluations_here();
}

std::vector<std::string> TrainingLoop::evaluations_here() const {
  const std::int64_t step = trainer_.step();
  const bool last = trainer_.finished();
  std::vector<std::string> names;
  if (last || evaluation_follows(step)) names.emplace_back("validation");
  if (last) names.emplace_back("test");
  for (const TrainingTask& task : tasks_) {
    const std::int64_t every = task.config.every;
    if (last || (every > 0 && step % every == 0)) names.push_back(kTaskDue + task.config.name);
  }
  return names;
}

const TrainingTask* TrainingLoop::find_task(const std::string& due) const {
  const auto found =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& task) { return kTaskDue + task.config.name == due; });
  return found == tasks_.end() ? nullptr : &*found;
}

bool TrainingLoop::evaluate(const std::string& due) {
  const TrainingTask* const task = find_task(due);
  return task != nullptr ? evaluate_task(*task) : evaluate_split(due);
}

bool TrainingLoop::evaluate_split(const std::string& split) {
  const bool test = split == "test";
  const std::optional<SampleSet>& samples = test ? datasets_.test() : datasets_.validation();
  if (!samples) return true;
  watch_.begin(test ? "evaluating on test" : "evaluating on validation");
  const std::int64_t first = test ? 0 : datasets_.first_validation_sample(trainer_.step());
  const std::optional<EvaluatedLoss> loss = trainer_.evaluate(*samples, first, [this] { return stop_requested(); });
  if (!loss) return false;
  if (!log_.enabled()) return true;
  metrics_.write(EvaluationMetrics{.split = split,
                                   .step = trainer_.step(),
                                   .loss = loss->total,
                                   .losses = named_losses(trainer_.loss_terms(), loss->terms),
                                   .samples = trainer_.samples(),
                                   .tokens = trainer_.tokens(),
                                   .time = wall_seconds()});
  if (std::isfinite(loss->total)) {
    log_.info("{} loss {:.4f}, perplexity {:.3f} after step {}{}", split, loss->total, perplexity(loss->terms[0]),
              trainer_.step(), losses_by_name(named_losses(trainer_.loss_terms(), loss->terms)));
  } else {
    log_.warning(
        "the {} loss after step {} is not finite: the model has diverged, or activations exceed what "
        "precision.compute holds; training continues",
        split, trainer_.step());
  }
  progress_.repeat_header();
  plot_.redraw();
  return true;
}

bool TrainingLoop::evaluate_task(const TrainingTask& task) {
  const std::string& name = task.config.name;
  watch_.begin("evaluating on " + name);
  const std::optional<std::vector<TargetScore>> scores =
      trainer_.score(task.task->sequences(), [this] { return stop_requested(); });
  if (!scores) return false;
  if (!log_.enabled()) return true;
  const EvaluationResult result = task.task->result(*scores);
  const TaskMetrics metrics{.name = name,
                            .task = result.task,
                            .step = trainer_.step(),
                            .examples = result.examples,
                            .targets = result.tokens,
                            .measures = result_measures(result),
                            .samples = trainer_.samples(),
                            .tokens = trainer_.tokens(),
                            .time = wall_seconds()};
  metrics_.write(metrics);
  if (std::isfinite(result.loss)) {
    log_.info("{} after step {}: {}", name, trainer_.step(), result_line(result));
  } else {
    log_.warning(
        "the loss on {} after step {} is not finite: the model has diverged, or activations exceed what "
        "precision.compute holds; training continues",
        name, trainer_.step());
  }
  progress_.repeat_header();
  plot_.redraw();
  return true;
}

bool TrainingLoop::evaluate_what_is_due() {
  while (!evaluations_due_.empty()) {
    if (!evaluate(evaluations_due_.front())) return false;
    evaluations_due_.erase(evaluations_due_.begin());
  }
  return true;
}

void TrainingLoop::check_replicas() {
  if (checked_step_ == trainer_.step()) return;
  trainer_.check_replicas();
  checked_step_ = trainer_.step();
}

SavePoint TrainingLoop::here() const {
  return {trainer_.step(), evaluations_due_.size()};
}

void TrainingLoop::save() {
  if (saves_.covers(here())) return;
  watch_.begin("saving");
  agree(world_, [&] {
    if (lock_ != nullptr) lock_->hold();
  });
  if (config_.train.check_replicas_every > 0) check_replicas();  // so that it is good to continue from
  nlohmann::json state = skips_.state();
  state[kEvaluationsDue] = evaluations_due_;
  state[kEvaluatedOn] = evaluation_facts(datasets_, tasks_);
  state[kLossSinceLine] = since_metrics_.loss_state();
  SaveOptions options;
  if (skips_.in_a_row() > 0) options.nothing_learned_since = trainer_.step() - skips_.in_a_row();
  saves_.save(here(), state, !stopping_ && !trainer_.finished() && !stops_here(), options);
}

void TrainingLoop::save_last() {
  saves_.wait();
  saves_.look_again();
  save();
  if (saves_.has(here())) return;
  finish();
  fail(ErrorKind::filesystem,
       "the last step, {}, could not be saved (see the warning above); make room, then run the same command again: it "
       "continues from step {}",
       trainer_.step(), saves_.newest_step());
}

int TrainingLoop::stop() {
  save_last();
  log_.info("stopped on {} after step {}; {}run the same command again{} to continue",
            stop_signal_ != 0 ? StopSignals::reason_for(stop_signal_) : stop_for_, trainer_.step(),
            stop_for_ == stop_file_path(config_.run.directory) ? "remove that file and " : "",
            config_.checkpoint.resume ? "" : " with checkpoint.resume = true");
  finish();
  signals_.ignore_from_now_on();
  return kExitStoppedEarly;
}

bool TrainingLoop::stops_here() const {
  const std::int64_t last = config_.train.stop_after;
  return last > 0 && trainer_.step() >= last && !trainer_.finished() && evaluations_due_.empty();
}

int TrainingLoop::end() {
  const bool kept = !config_.checkpoint.never || saves_.any();  // no checkpoint of a stopped run may stay
  if (kept) {
    save_last();
  } else {
    trainer_.require_finite_parameters();
  }
  finish();
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
  if (trainer_.finished() && evaluations_due_.empty()) evaluations_due_ = evaluations_here();
  while (!stops_here() && (!trainer_.finished() || !evaluations_due_.empty())) {
    const Request request = this->request();
    if (request == Request::stop) return stop();
    if (request == Request::save) {
      save();
      if (stop_requested()) return stop();  // what time there is was reckoned for one save, not for two and a step
    }
    if (evaluations_due_.empty()) train_one_step();
    if (!evaluate_what_is_due()) continue;  // to be stopped
    const std::int64_t step = trainer_.step();
    if (config_.checkpoint.every_steps > 0 && step % config_.checkpoint.every_steps == 0 && !trainer_.finished())
      save();
  }
  return end();
}

void TrainingLoop::finish() {
  watch_.begin("");
  RankReport mine;
  for (std::size_t i = 0; i < kSectionCount; ++i) mine.seconds[i] = trainer_.timers().seconds(static_cast<Section>(i));
  mine.peak_resident_bytes = static_cast<double>(peak_resident_bytes());
  mine.planned_bytes = static_cast<double>(trainer_.replica().plan().total());
  mine.used_bytes = static_cast<double>(trainer_.used().total());
  mine.sent_bytes = static_cast<double>(trainer_.traffic().bytes_sent);
  const std::vector<std::string> texts = world_.gather_texts(mine.to_text(), 0);
  if (!log_.enabled()) return;
  std::vector<RankReport> ranks;
  for (const std::string& text : texts) ranks.push_back(RankReport::from_text(text));
  plot_.redraw();
  log_.info(std::string_view(end_table(ranks)));
  if (skips_.in_all() > 0) {
    log_.info("skipped: {} of {} steps, since their loss or gradient was not finite", skips_.in_all(), trainer_.step());
  }
  log_.info("loss plot: {}/loss.svg", config_.run.directory);
}

bool evaluations_due(const CheckpointReader& checkpoint) {
  bool due = false;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    due = !extra.at("loop").value(kEvaluationsDue, std::vector<std::string>()).empty();
  });
  return due;
}

}  // namespace megatron
