#include "train/training_loop.h"

#include <chrono>
#include <cmath>
#include <set>
#include <sstream>

#include "base/memory_usage.h"
#include "config/print.h"
#include "model/flops.h"
#include "train/report.h"

namespace megatron {

namespace {

constexpr std::int64_t kMostSkippedInARow = 20;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The lines of the resolved configuration that differ from the checkpoint's: a changed rate must not go unnoticed.
void log_changes(Log& log, const std::string& saved, const std::string& current) {
  const auto lines = [](const std::string& text) {
    std::set<std::string> result;
    std::istringstream stream(text);
    std::string table;
    for (std::string line; std::getline(stream, line);) {
      if (line.starts_with('['))
        table = line.substr(1, line.find(']') - 1);
      else if (!line.empty())
        result.insert(table + "." + line);
    }
    return result;
  };
  const std::set<std::string> before = lines(saved), now = lines(current);
  for (const std::string& line : now) {
    if (before.count(line) == 0) log.info("  changed since the checkpoint: {}", line);
  }
}

}  // namespace

TrainingLoop::TrainingLoop(const Config& config, const ProcessGrid& grid, Backend& backend, Datasets& datasets,
                           Log& log, StopSignals& signals)
    : config_(config),
      grid_(grid),
      world_(grid.world()),
      datasets_(datasets),
      log_(log),
      signals_(signals),
      trainer_(config, grid, backend, datasets),
      metrics_(config.run.directory + "/metrics.jsonl", log),
      progress_(log, config.train.steps),
      plot_(config.run.directory, config.run.directory, log),
      last_save_(wall_seconds()) {}

void TrainingLoop::go_on_from(const CheckpointReader& checkpoint) {
  const nlohmann::json loop = trainer_.resume(checkpoint);
  skipped_ = loop.value("skipped", std::int64_t{0});
  skipped_in_a_row_ = loop.value("skipped_in_a_row", std::int64_t{0});
  log_.info("resuming from {} at step {}", checkpoint.path(), trainer_.step());
  log_changes(log_, checkpoint.state().extra.value("config", std::string()), print_config(config_));
  if (checkpoint.state().extra.value("data_hash", std::uint64_t{0}) != datasets_.train_source().set_hash()) {
    log_.warning("data.train holds other tokens than when the checkpoint was written; the samples that follow differ");
  }
  if (trainer_.finished()) log_.info("nothing is left to train: step {} of {}", trainer_.step(), config_.train.steps);
}

void TrainingLoop::load(const std::optional<CheckpointReader>& own) {
  std::vector<std::string> warnings;
  const CheckpointConfig& checkpoint = config_.checkpoint;
  if (own) {
    go_on_from(*own);
    saved_step_ = trainer_.step();
  } else if (!checkpoint.load.empty()) {
    go_on_from(open_named_checkpoint(world_, checkpoint.load, warnings));
  } else if (!checkpoint.initialize_from.empty()) {
    const CheckpointReader other = open_named_checkpoint(world_, checkpoint.initialize_from, warnings);
    trainer_.initialize_from(other);
    log_.info("weights from {}", other.path());
  }
  for (const std::string& warning : warnings) log_.warning(std::string_view(warning));
}

TrainingLoop::Request TrainingLoop::request() {
  Request mine = Request::none;
  const double minutes = config_.checkpoint.every_minutes;
  if (world_.rank() == 0 && minutes > 0 && wall_seconds() - last_save_ > 60 * minutes) mine = Request::save;
  if (signals_.received() != 0) mine = Request::stop;
  // One axis after the other: a few messages a rank, where all ranks at once would be one for every other rank.
  auto request = static_cast<double>(mine);
  for (Communicator* axis : {&grid_.tensor(), &grid_.data(), &grid_.pipeline()}) {
    request = axis->all_reduce_value(request, Reduce::maximum);
  }
  return static_cast<Request>(std::lround(request));
}

void TrainingLoop::record(const StepResult& result, double seconds) {
  seconds_since_line_ += seconds;
  ++steps_since_line_;
  const std::int64_t every = config_.run.log_every;
  if (trainer_.step() % every != 0 && !trainer_.finished()) return;
  const double step_seconds = seconds_since_line_ / static_cast<double>(steps_since_line_);
  const auto step_tokens = static_cast<double>(config_.train.global_batch_size * config_.model.sequence_length);
  const FlopsPerToken flops = flops_per_token(config_.model, config_.recompute);
  const double tokens_per_second = step_tokens / step_seconds;
  const double token_rate_of_rank = tokens_per_second / grid_.shape().ranks();
  if (log_.speaking()) {
    metrics_.write(TrainMetrics{.step = trainer_.step(),
                                .loss = result.loss,
                                .losses = {{"language_model", result.loss}},
                                .grad_norm = result.gradient_norm,
                                .learning_rate = result.learning_rate,
                                .samples = trainer_.samples(),
                                .tokens = trainer_.tokens(),
                                .epoch = static_cast<double>(trainer_.samples()) /
                                         static_cast<double>(datasets_.train().order.samples_per_epoch()),
                                .global_batch_size = config_.train.global_batch_size,
                                .step_seconds = step_seconds,
                                .tokens_per_second = tokens_per_second,
                                .model_tflops_per_rank = 1e-12 * flops.model * token_rate_of_rank,
                                .hardware_tflops_per_rank = 1e-12 * flops.hardware * token_rate_of_rank,
                                .loss_scale = 1,
                                .skipped = skipped_,
                                .time = wall_seconds()});
    progress_.print({.step = trainer_.step(),
                     .loss = result.loss,
                     .grad_norm = result.gradient_norm,
                     .learning_rate = result.learning_rate,
                     .step_seconds = step_seconds,
                     .tokens_per_second = tokens_per_second,
                     .skipped = result.skipped});
  }
  seconds_since_line_ = 0;
  steps_since_line_ = skipped_ = 0;
}

void TrainingLoop::train_one_step() {
  const double start = Timers::steady_seconds();
  const StepResult result = trainer_.train_step();
  skipped_ += result.skipped ? 1 : 0;
  skipped_in_a_row_ = result.skipped ? skipped_in_a_row_ + 1 : 0;
  verify(skipped_in_a_row_ < kMostSkippedInARow, ErrorKind::numerics,
         "step {}: the gradient has not been finite for {} steps in a row, and nothing is learned any more; lower "
         "learning_rate.peak, lengthen the warm-up, or resume from an older checkpoint",
         trainer_.step(), skipped_in_a_row_);
  record(result, Timers::steady_seconds() - start);
}

void TrainingLoop::evaluate(const char* split, const std::optional<SampleSet>& samples) {
  if (!samples) return;
  const double loss = trainer_.evaluate(*samples);
  if (!log_.speaking()) return;
  metrics_.write(EvaluationMetrics{.split = split, .step = trainer_.step(), .loss = loss});
  log_.info("{} loss {:.4f}, perplexity {:.3f} after step {}", split, loss, perplexity(loss), trainer_.step());
  progress_.repeat_header();
  plot_.redraw();
}

void TrainingLoop::save() {
  if (saved_step_ == trainer_.step()) return;
  last_save_ = wall_seconds();  // an attempt that fails counts: the next is due as long after it
  SaveReport report;
  try {
    report = trainer_.save(config_.run.directory, {{"skipped", skipped_}, {"skipped_in_a_row", skipped_in_a_row_}});
  } catch (const Error& error) {  // on all ranks alike
    if (error.kind() != ErrorKind::filesystem || saved_step_ < 0) throw;
    log_.warning("step {} is not saved: {}; training goes on, the checkpoint of step {} is intact", trainer_.step(),
                 error.what(), saved_step_);
    return;
  }
  saved_step_ = trainer_.step();
  if (!log_.speaking()) return;
  for (const std::string& warning : report.warnings) log_.warning(std::string_view(warning));
  log_.info("saved {} ({} in {:.2f} s)", report.path, format_bytes(static_cast<double>(report.bytes)), report.seconds);
  plot_.redraw();
}

void TrainingLoop::save_last() {
  save();
  if (saved_step_ == trainer_.step()) return;
  finish();
  fail(ErrorKind::filesystem,
       "the last step, {}, could not be saved (see the warning above); make room, then run the same command again: it "
       "goes on from step {}",
       trainer_.step(), saved_step_);
}

int TrainingLoop::run() {
  const bool saves = config_.checkpoint.every_steps > 0 || config_.checkpoint.every_minutes > 0;
  trainer_.timers().reset();
  while (!trainer_.finished()) {
    const Request request = this->request();
    if (request == Request::stop) {
      save_last();
      log_.info("stopped on {} after step {}; run the same command again{} to go on",
                signals_.received() != 0 ? StopSignals::name_of(signals_.received()) : "request", trainer_.step(),
                config_.checkpoint.resume ? "" : " with checkpoint.resume = true");
      finish();
      signals_.ignore_from_now_on();
      return kExitStoppedEarly;
    }
    if (request == Request::save) save();
    train_one_step();
    const std::int64_t step = trainer_.step();
    const auto due = [step](std::int64_t every) { return every > 0 && step % every == 0; };
    if (due(config_.train.evaluate_every) && !trainer_.finished()) evaluate("validation", datasets_.validation());
    if (due(config_.checkpoint.every_steps) && !trainer_.finished()) save();
  }
  evaluate("validation", datasets_.validation());
  evaluate("test", datasets_.test());
  if (saves || saved_step_ >= 0) save_last();  // a run that was stopped has a checkpoint: the last step must be one too
  finish();
  return 0;
}

void TrainingLoop::finish() {
  RankReport mine;
  for (std::size_t i = 0; i < kSectionCount; ++i) mine.seconds[i] = trainer_.timers().seconds(static_cast<Section>(i));
  mine.peak_resident_bytes = static_cast<double>(peak_resident_bytes());
  mine.planned_bytes = static_cast<double>(trainer_.replica().plan().total());
  mine.used_bytes = static_cast<double>(trainer_.used_bytes());
  mine.sent_bytes = static_cast<double>(trainer_.traffic().bytes_sent);
  const std::vector<std::string> texts = world_.gather_texts(mine.to_text(), 0);
  if (!log_.speaking()) return;
  std::vector<RankReport> ranks;
  for (const std::string& text : texts) ranks.push_back(RankReport::from_text(text));
  plot_.redraw();
  log_.info(std::string_view(end_table(ranks)));
  log_.info("loss plot: {}/loss.svg", config_.run.directory);
}

}  // namespace megatron
