#include "run/run.h"

#include <algorithm>
#include <set>

#include "checkpoint/files.h"
#include "comm/agreement.h"
#include "config/print.h"
#include "job/code_paths.h"
#include "job/cores.h"
#include "job/hang_watch.h"
#include "job/node_memory.h"
#include "job/run_lock.h"
#include "plan/machine_plan.h"
#include "plan/plan_text.h"
#include "plan/split_report.h"
#include "report/history.h"
#include "run/finished_run.h"
#include "run/run_start.h"
#include "run/shared_directory.h"
#include "run/training_loop.h"
#include "system/log.h"
#include "text/text.h"
#include "train/code_path.h"
#include "train/compute.h"
#include "train/grid.h"

namespace megatron {

namespace {

// Rank 0 prepares the run directory and locks it; what goes wrong there ends all ranks alike.
std::unique_ptr<RunLock> prepare_directory(Communicator& world, const Config& config, Log& log) {
  std::unique_ptr<RunLock> lock;
  agree(world, [&] {
    if (world.rank() != 0) return;
    const std::string& directory = config.run.directory;
    verify(config.checkpoint.resume || !directory_has_run(directory), ErrorKind::configuration,
           "run.directory = \"{}\" holds a run already and checkpoint.resume = false; name another directory, "
           "resume, or give --fresh, which starts over in a directory with another suffix",
           directory);
    check_writable(directory);
    lock = std::make_unique<RunLock>(directory, log);
    HangWords::clear(directory);  // left by a job that was aborted
    clean_checkpoints(directory);
  });
  return lock;
}

void write_config(Communicator& world, const Config& config) {
  agree(
      world,
      [&] {
        if (world.rank() == 0) replace_file_durably(config.run.directory + "/config.toml", print_config(config));
      },
      ErrorKind::filesystem);
}

void check_checkpoint_space(Communicator& world, const Config& config, const std::vector<MemoryPlan>& stages) {
  if (config.checkpoint.never) return;
  agree(world, [&] {
    if (world.rank() != 0) return;
    std::int64_t elements = 0;
    for (const MemoryPlan& plan : stages) elements += plan.stage_parameters;
    // The newest good one stays until its successor is complete.
    check_free_space(config.run.directory, room_for_checkpoint(elements * (1 + stages.front().moments), world.size()));
  });
}

TimeLimits time_limits(const Config& config, const RunEnvironment& environment) {
  return {.started = environment.started, .max_minutes = config.run.max_minutes, .job_ends = environment.job_ends};
}

// For history.jsonl. Rank 0's.
ProgramStart program_start(const RunEnvironment& environment, const Config& config, const Compute& compute,
                           const std::vector<std::string>& hosts, std::int64_t step) {
  return {.time = wall_seconds(),
          .version = environment.version,
          .step = step,
          .ranks = static_cast<std::int64_t>(hosts.size()),
          .hosts = static_cast<std::int64_t>(std::set<std::string>(hosts.begin(), hosts.end()).size()),
          .host = environment.host,
          .device = compute.backend.device->description(),
          .transport = compute.description,
          .job = environment.job,
          .threads = config.run.threads,
          .config = print_config(config)};
}

void log_banner(Log& log, Communicator& world, const RunEnvironment& environment, const Config& config,
                const Compute& compute, const std::vector<std::string>& hosts, const std::vector<MemoryPlan>& stages,
                const DataFacts& data, bool resumed) {
  std::vector<std::string> warnings = core_warnings(world, environment.host, config.run.threads);
  const std::vector<std::string> code_paths = world.gather_texts(chosen_code_path(), 0);
  if (!log.enabled()) return;
  if (std::string mixed = code_path_warning(hosts, code_paths); !mixed.empty()) warnings.push_back(std::move(mixed));
  const std::set<std::string> distinct(hosts.begin(), hosts.end());
  log.info("megatron_train {}", environment.version);
  log.info("hosts     {} on {}: {}", counted(world.size(), "rank"),
           counted(static_cast<std::int64_t>(distinct.size()), "host"), fmt::join(distinct, " "));
  if (!environment.job.empty()) log.info("job       {}", environment.job);
  const std::string ends = RunLimits(time_limits(config, environment), config.run.directory).description();
  if (!ends.empty()) log.info("ends      {}", ends);
  log.info("device    {}", compute.backend.device->description());
  if (!compute.description.empty()) log.info("transport {}", compute.description);
  log.info(std::string_view(describe_plan(config, stages)));
  // A resumed run has shown its speed before.
  Machine machine = resumed ? examine_machine(config) : measure_machine(config);
  const auto ranks_here = static_cast<int>(std::count(hosts.begin(), hosts.end(), environment.host));
  // The ranks hold their examples already, so that less is free.
  if (machine.free_memory) *machine.free_memory += data.host_bytes * static_cast<std::size_t>(ranks_here);
  log.info(std::string_view(wrapped(plan_for_machine(config, stages, &data, machine, ranks_here).text)));
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));
}

}  // namespace

int run_training(const Config& given, Communicator& world, const RunEnvironment& environment, StopSignals& signals) {
  Log log(world.rank() == 0);
  const auto tell_phase = [&](const char* phase) {
    if (Activity* activity = world.activity()) activity->set_phase(phase);
  };
  tell_phase("start");
  std::vector<std::string> warnings = environment.notes;
  ResolvedRun resolved = agree_on_run(given, world, warnings, environment.fresh);
  tell_phase("checkpoint");
  if (environment.fresh) {
    resolved.config.run.directory = choose_fresh_directory(world, resolved.config.run.directory, log);
  }
  const Config& config = resolved.config;
  Datasets& datasets = *resolved.datasets;
  const std::unique_ptr<RunLock> lock = prepare_directory(world, config, log);
  require_shared_directory(world, config, environment.host);

  const std::optional<CheckpointReader> own =
      config.checkpoint.resume ? open_newest_checkpoint(world, config.run.directory, warnings) : std::nullopt;
  log.append_to(config.run.directory + "/run.log");
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));
  if (const std::string complete = already_complete(world, config, own); !complete.empty()) {
    log.info(std::string_view(complete));
    return 0;
  }

  // It stays until a person removes it: a run that was stopped must not be resumed by the next job in the queue.
  if (world.any_rank(world.rank() == 0 && stop_file_exists(config.run.directory))) {
    log.info("stopped on {} before the first step; remove that file and run the same command again to continue",
             stop_file_path(config.run.directory));
    signals.ignore_from_now_on();
    return kExitStoppedEarly;
  }

  tell_phase("setting up");
  const GridShape shape = grid_shape(config);
  Compute compute = start_compute(config.run, world, environment.host, environment.local_rank);
  const ProcessGrid grid(world, shape, compute.transport.get());
  if (environment.hang_watch != nullptr) {
    environment.hang_watch->know(grid.shape(), !on_host_memory(config.run), config.run.directory);
  }
  const std::vector<MemoryPlan> stages = plan_stages(config, shape, compute.transport_kind);
  const std::vector<std::string> hosts = world.gather_texts(environment.host, 0);
  log_banner(log, world, environment, config, compute, hosts, stages, datasets.facts(), own.has_value());
  log.info(std::string_view(wrapped("order     " + datasets.train().samples->description())));
  for (const std::string& note : datasets.notes()) log.warning(std::string_view(note));
  const SplitReport splits = report_splits(config, datasets);
  for (const std::string& line : splits.lines) log.info(std::string_view(line));
  for (const std::string& warning : splits.warnings) log.warning(std::string_view(warning));
  const MemoryPlan& plan = stages[static_cast<std::size_t>(grid.at().pipeline)];
  // The free memory is without a task's examples, which every rank has read by now.
  require_memory(world, environment.host, *compute.backend.device, {.device = plan.total(), .host = plan.host},
                 "use fewer ranks per node, a smaller train.micro_batch_size, more tensor or pipeline ranks, or "
                 "recompute.mode = \"full\" (--dry-run says what a rank needs)");
  check_checkpoint_space(world, config, stages);

  TrainingLoop loop(config, grid, compute.backend, datasets, resolved.tasks, log, signals,
                    time_limits(config, environment), lock.get());
  tell_phase("loading");
  loop.load(own);
  write_config(world, config);  // not before: a checkpoint of another model is refused and its run left as it was
  agree(world, [&] {
    if (world.rank() == 0) datasets.keep_tokenizer(config.run.directory, log);
  });
  loop.continue_metrics();
  if (log.enabled()) {
    const ProgramStart start = program_start(environment, config, compute, hosts, loop.step());
    add_to_history(config.run.directory, history_line(start), log);
  }
  return loop.run();
}

}  // namespace megatron
