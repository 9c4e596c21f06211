#include "train/run.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "base/log.h"
#include "base/memory_usage.h"
#include "comm/agreement.h"
#include "config/print.h"
#include "config/unsupported.h"
#include "model/flops.h"
#include "train/loss_plot.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/report.h"
#include "train/run_lock.h"
#include "train/trainer.h"

namespace megatron {

namespace {

constexpr std::int64_t kMostSkippedInARow = 20;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void require_same(Communicator& world, const std::string& mine, ErrorKind kind, const char* message) {
  const std::string root = world.broadcast_text(mine, 0);
  verify(!world.any(mine != root), kind, "{}", message);
}

void require_same_config(Communicator& world, const Config& config) {
  require_same(world, config_hash(config), ErrorKind::configuration,
               "the ranks read different configurations; give every rank the same input file and options");
}

// Token shards may lie on each node's own disk: one stale copy would train copies of the model apart.
void require_same_data(Communicator& world, const Datasets& datasets) {
  require_same(world, datasets.fingerprint(), ErrorKind::data,
               "the ranks see different token shards under the same names; copy the same files to every node");
}

Backend make_backend(const RunConfig& run, int local_rank) {
  return run.device == "cuda" ? make_cuda_backend(local_rank) : make_cpu_backend();
}

// The lines of the resolved configuration that differ from the checkpoint's: a changed rate must not go unnoticed.
void log_changes(Log& log, const std::string& saved, const std::string& current) {
  const auto lines = [](const std::string& text) {
    std::set<std::string> result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) result.insert(line);
    return result;
  };
  const std::set<std::string> before = lines(saved), now = lines(current);
  for (const std::string& line : now) {
    if (before.count(line) == 0) log.info("  changed since the checkpoint: {}", line);
  }
}

/// The run's files and clocks on the speaking rank, and the loop's decisions.
class Run {
 public:
  Run(const Config& config, const ProcessGrid& grid, Backend& backend, Datasets& datasets, Log& log,
      StopSignals& signals)
      : config_(config),
        grid_(grid),
        world_(grid.world()),
        datasets_(datasets),
        log_(log),
        signals_(signals),
        trainer_(config, grid, backend, datasets),
        metrics_(config.run.directory + "/metrics.jsonl", log),
        progress_(log, config.train.steps),
        plot_(config.run.directory, config.run.directory, log) {}

  Trainer& trainer() { return trainer_; }

  void load(const std::optional<CheckpointReader>& own);
  int loop();

 private:
  enum class Request { none = 0, save = 1, stop = 2 };
  Request request();
  void go_on_from(const CheckpointReader& checkpoint);
  void train_one_step();
  void record(const StepResult& result, double seconds);
  void evaluate(const char* split, const std::optional<SampleSet>& samples);
  void save();
  void finish();

  const Config& config_;
  const ProcessGrid& grid_;
  Communicator& world_;
  Datasets& datasets_;
  Log& log_;
  StopSignals& signals_;
  Trainer trainer_;
  MetricsWriter metrics_;
  Progress progress_;
  LossPlot plot_;
  double last_save_ = wall_seconds();
  std::int64_t saved_step_ = -1, skipped_ = 0, skipped_in_a_row_ = 0;
  double seconds_since_line_ = 0;
  std::int64_t steps_since_line_ = 0;
};

void Run::go_on_from(const CheckpointReader& checkpoint) {
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

void Run::load(const std::optional<CheckpointReader>& own) {
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

Run::Request Run::request() {
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

void Run::record(const StepResult& result, double seconds) {
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

void Run::train_one_step() {
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

void Run::evaluate(const char* split, const std::optional<SampleSet>& samples) {
  if (!samples) return;
  const double loss = trainer_.evaluate(*samples);
  if (!log_.speaking()) return;
  metrics_.write(EvaluationMetrics{.split = split, .step = trainer_.step(), .loss = loss});
  log_.info("{} loss {:.4f}, perplexity {:.3f} after step {}", split, loss, perplexity(loss), trainer_.step());
  progress_.repeat_header();
  plot_.redraw();
}

void Run::save() {
  if (saved_step_ == trainer_.step()) return;
  const SaveReport report =
      trainer_.save(config_.run.directory, {{"skipped", skipped_}, {"skipped_in_a_row", skipped_in_a_row_}});
  saved_step_ = trainer_.step();
  last_save_ = wall_seconds();
  if (!log_.speaking()) return;
  for (const std::string& warning : report.warnings) log_.warning(std::string_view(warning));
  log_.info("saved {} ({} in {:.2f} s)", report.path, format_bytes(static_cast<double>(report.bytes)), report.seconds);
  plot_.redraw();
}

int Run::loop() {
  const bool saves = config_.checkpoint.every_steps > 0 || config_.checkpoint.every_minutes > 0;
  trainer_.timers().reset();
  while (!trainer_.finished()) {
    const Request request = this->request();
    if (request == Request::stop) {
      save();
      log_.info("stopped on {} after step {}; run the same command again to go on",
                signals_.received() != 0 ? StopSignals::name_of(signals_.received()) : "request", trainer_.step());
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
  if (saves) save();
  finish();
  return 0;
}

void Run::finish() {
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

// Rank 0 prepares the run directory and locks it; what goes wrong there ends all ranks alike.
std::unique_ptr<RunLock> prepare_directory(Communicator& world, const Config& config) {
  std::unique_ptr<RunLock> lock;
  agree(world, [&] {
    if (world.rank() != 0) return;
    const std::string& directory = config.run.directory;
    verify(config.checkpoint.resume || !directory_has_run(directory), ErrorKind::configuration,
           "run.directory = \"{}\" holds a run already and checkpoint.resume = false; name another directory, or "
           "resume",
           directory);
    check_writable(directory);
    lock = std::make_unique<RunLock>(directory);
    clean_checkpoints(directory);
  });
  return lock;
}

// The step that a run without checkpoints has reached, by its metrics: its own record that it was finished.
std::int64_t last_recorded_step(Communicator& world, const std::string& directory) {
  double step = 0;
  if (world.rank() == 0) {
    visit_metrics(directory + "/metrics.jsonl", [&](const nlohmann::json& line, std::string_view) {
      if (line.value("kind", "") == "train") step = line.value("step", 0.0);
    });
  }
  return std::lround(world.all_reduce_value(step, Reduce::maximum));
}

// What an evaluation will see, or why there will be none.
void log_evaluation(Log& log, const Config& config, const char* split, const std::optional<SampleSet>& samples) {
  const std::int64_t batch = config.train.global_batch_size;
  if (!samples) {
    log.info("{:<9} no samples: data.split = \"{}\" leaves it less than one of {} tokens", split, config.data.split,
             config.model.sequence_length);
    return;
  }
  const auto available = static_cast<std::int64_t>(samples->order.samples_per_epoch());
  if (available < batch) {
    log.warning("{}: {} samples, less than a batch of {}: some count twice in its loss", split, available, batch);
  }
  log.info("{:<9} {} of {} samples", split,
           std::max(batch, std::min(config.train.evaluate_steps, available / batch) * batch), available);
}

void write_config(Communicator& world, const Config& config) {
  agree(
      world,
      [&] {
        if (world.rank() != 0) return;
        const std::string path = config.run.directory + "/config.toml";
        std::ofstream file(path);
        file << print_config(config);
        file.close();
        verify(file.good(), ErrorKind::filesystem, "cannot write {}", path);
      },
      ErrorKind::filesystem);
}

void check_checkpoint_space(Communicator& world, const Config& config, const std::vector<MemoryPlan>& stages) {
  if (config.checkpoint.every_steps == 0 && config.checkpoint.every_minutes == 0) return;
  agree(world, [&] {
    if (world.rank() != 0) return;
    std::int64_t elements = 0;
    for (const MemoryPlan& plan : stages) elements += plan.parameters * config.parallel.tensor;
    // The newest good one stays until its successor is complete.
    check_free_space(config.run.directory, checkpoint_bytes(elements, true, world.size()));
  });
}

void log_banner(Log& log, Communicator& world, const RunEnvironment& environment, const Config& config,
                const Backend& backend, const std::vector<MemoryPlan>& stages) {
  const std::vector<std::string> hosts = world.gather_texts(environment.host, 0);
  if (!log.speaking()) return;
  const std::set<std::string> distinct(hosts.begin(), hosts.end());
  log.info("megatron_train {}", environment.version);
  log.info("hosts     {} ranks on {} host{}: {}", world.size(), distinct.size(), distinct.size() == 1 ? "" : "s",
           fmt::join(distinct, " "));
  log.info("device    {}", backend.device->description());
  log.info(std::string_view(describe_plan(config, stages)));
}

}  // namespace

int run_training(Config config, Communicator& world, const RunEnvironment& environment, StopSignals& signals) {
  Log log(world.rank() == 0);
  require_same_config(world, config);
  refuse_what_is_to_come(config);

  std::unique_ptr<Datasets> datasets;
  agree(world, [&] {
    datasets = std::make_unique<Datasets>(config);
    const DataFacts facts = datasets->facts();
    resolve(config, world.size(), &facts);
  });
  require_same_config(world, config);
  require_same_data(world, *datasets);
  const std::unique_ptr<RunLock> lock = prepare_directory(world, config);

  std::vector<std::string> warnings;
  const std::optional<CheckpointReader> own =
      config.checkpoint.resume ? open_newest_checkpoint(world, config.run.directory, warnings) : std::nullopt;
  log.append_to(config.run.directory + "/run.log");
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));
  if (own && own->state().step >= config.train.steps) {
    log.info("already complete: {} is at step {} of {}; raise train.steps to go on", own->path(), own->state().step,
             config.train.steps);
    return 0;
  }

  if (!own && config.checkpoint.resume && last_recorded_step(world, config.run.directory) >= config.train.steps) {
    log.info("already complete: {} has {} steps (and no checkpoints: checkpoint.every_steps = 0)", config.run.directory,
             config.train.steps);
    return 0;
  }

  const GridShape shape = grid_shape(config);
  const ProcessGrid grid(world, shape);
  Backend backend = make_backend(config.run, environment.local_rank);
  const std::vector<MemoryPlan> stages = plan_stages(config, shape);
  log_banner(log, world, environment, config, backend, stages);
  log_evaluation(log, config, "validation", datasets->validation());
  log_evaluation(log, config, "test", datasets->test());
  check_checkpoint_space(world, config, stages);

  Run run(config, grid, backend, *datasets, log, signals);
  run.load(own);
  write_config(world, config);  // not before: a checkpoint of another model is refused and its run left as it was
  agree(
      world,
      [&] {
        if (world.rank() == 0) truncate_metrics(config.run.directory + "/metrics.jsonl", run.trainer().step());
      },
      ErrorKind::filesystem);
  return run.loop();
}

}  // namespace megatron
