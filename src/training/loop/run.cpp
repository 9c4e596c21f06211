#include "training/loop/run.h"

#include <algorithm>
#include <set>

#include "base/system/log.h"
#include "base/system/storage.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "checkpoint/store/files.h"
#include "config/schema/print.h"
#include "distributed/comm/agreement.h"
#include "distributed/process/code_paths.h"
#include "distributed/process/cores.h"
#include "distributed/process/hang_watch.h"
#include "distributed/process/node_memory.h"
#include "distributed/process/run_lock.h"
#include "monitoring/reports/history.h"
#include "planning/dry_run/checkpoint_size.h"
#include "planning/dry_run/machine_plan.h"
#include "planning/dry_run/plan_text.h"
#include "planning/dry_run/split_report.h"
#include "planning/dry_run/start_paths.h"
#include "training/loop/finished_run.h"
#include "training/loop/run_start.h"
#include "training/loop/shared_directory.h"
#include "training/loop/training_loop.h"
#include "training/step/code_path.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/offload.h"

namespace megatron {

namespace {

void tell_phase(Communicator& world, const char* phase) {
  if (Activity* activity = world.activity()) activity->set_phase(phase);
}

void warn(Log& log, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) log.warning(warning);
}

ResolvedRun resolve_run(const Config& given, Communicator& world, bool fresh, std::vector<std::string>& warnings,
                        Log& log) {
  tell_phase(world, "start");
  on_rank_0(world, [&] { require_run_folder(given.run.directory); });
  ResolvedRun run = agree_on_run(given, world, warnings, fresh);
  tell_phase(world, "checkpoint");
  if (fresh) run.config.run.directory = choose_fresh_directory(world, run.config.run.directory, log);
  return run;
}

std::unique_ptr<RunLock> prepare_directory(Communicator& world, const Config& config, Log& log) {
  std::unique_ptr<RunLock> lock;
  on_rank_0(world, [&] {
    const std::string& directory = config.run.directory;
    verify(config.checkpoint.resume || !directory_has_run(directory), ErrorKind::configuration,
           "run.directory = \"{}\" holds a run already and checkpoint.resume = false; name another directory, "
           "resume, or give --fresh, which starts over in a directory with another suffix",
           directory);
    std::vector<std::string> told_when_loaded;
    if (!directory_has_run(directory)) require_named_checkpoint(config.checkpoint, told_when_loaded);
    check_writable(directory);
    lock = std::make_unique<RunLock>(directory, log);
    HangWords::clear(directory);  // left by a job that was aborted
    clean_checkpoints(directory);
  });
  return lock;
}

void write_config(Communicator& world, const Config& config) {
  const auto write = [&] { replace_file_durably(config.run.directory + "/config.toml", print_config(config)); };
  on_rank_0(world, write, ErrorKind::filesystem);
}

// Room for the files of offloaded states and for a checkpoint, where both are in the run directory.
void check_space_of_files(const Config& config, const std::vector<MemoryPlan>& stages) {
  if (!config.optimizer.offload_folder.empty()) return;
  const double files = bytes_of_state_files(config, stages, grid_shape(config).ranks());
  if (files == 0) return;
  const auto checkpoint = static_cast<double>(free_bytes_for_checkpoint(config, stages));
  const std::optional<std::int64_t> free = free_space(config.run.directory);
  verify(
      !free || static_cast<double>(*free) >= files + checkpoint, ErrorKind::filesystem,
      "{}: the files of optimizer.offload need {}, a checkpoint {}, and {} are free; make room, or name another folder "
      "with optimizer.offload_folder",
      config.run.directory, format_bytes(files), format_bytes(checkpoint),
      format_bytes(static_cast<double>(free.value_or(0))));
}

void check_checkpoint_space(Communicator& world, const Config& config, const std::vector<MemoryPlan>& stages) {
  if (config.checkpoint.never) return;
  on_rank_0(world, [&] {
    // The newest good one stays until its successor is complete.
    check_free_space(config.run.directory, free_bytes_for_checkpoint(config, stages));
    check_space_of_files(config, stages);
  });
}

TimeLimits time_limits(const Config& config, const RunEnvironment& environment) {
  return {.started = environment.started, .max_minutes = config.run.max_minutes, .job_ends = environment.job_ends};
}

void record_start(Log& log, const RunEnvironment& environment, const Config& config, const Compute& compute,
                  const std::vector<std::string>& hosts, std::int64_t step) {
  if (!log.enabled()) return;
  const ProgramStart start{.time = wall_seconds(),
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
  add_to_history(config.run.directory, history_line(start), log);
}

void log_banner(Log& log, Communicator& world, const RunEnvironment& environment, const Config& config,
                const Compute& compute, const std::vector<std::string>& hosts, const std::vector<MemoryPlan>& stages,
                const DataFacts& data, bool resumed) {
  std::vector<std::string> warnings = core_warnings(world, environment.host, config.run.threads);
  const std::vector<std::string> code_paths = world.gather_texts(chosen_code_path(), 0);
  if (!log.enabled()) return;
  if (std::string mixed = code_path_warning(hosts, code_paths); !mixed.empty()) warnings.push_back(std::move(mixed));
  if (std::string apart = sets_on_hosts_warning(config, hosts); !apart.empty()) warnings.push_back(std::move(apart));
  const std::set<std::string> distinct(hosts.begin(), hosts.end());
  log.info("megatron_train {}", environment.version);
  log.info("hosts     {} on {}: {}", counted(world.size(), "rank"),
           counted(static_cast<std::int64_t>(distinct.size()), "host"), fmt::join(distinct, " "));
  if (!environment.job.empty()) log.info("job       {}", environment.job);
  const std::string ends = RunLimits(time_limits(config, environment), config.run.directory).description();
  if (!ends.empty()) log.info("ends      {}", ends);
  log.info("device    {}", compute.backend.device->description());
  if (config.precision.dtype() == DType::bf16 && !compute.half_products.empty()) {
    log.info("products  bf16 {}",
             compute.half_products == "widened" ? "widened to fp32" : "by " + compute.half_products);
  }
  if (!compute.description.empty()) log.info("transport {}", compute.description);
  log.info(describe_plan(config, stages));
  // A resumed run has shown its speed before.
  Machine machine = resumed ? examine_machine(config) : measure_machine(config);
  const auto ranks_here = static_cast<int>(std::count(hosts.begin(), hosts.end(), environment.host));
  // The ranks hold their examples already, so that less is free.
  if (machine.free_memory) *machine.free_memory += data.host_bytes * static_cast<std::size_t>(ranks_here);
  const MachinePlan plan = plan_for_machine(config, stages, &data, machine, ranks_here);
  log.info(wrapped(plan.text));
  warn(log, plan.warnings);
  warn(log, warnings);
}

void log_data(Log& log, const Config& config, const Datasets& datasets) {
  log.info(wrapped("order     " + datasets.train().samples->description()));
  warn(log, datasets.notes());
  const SplitReport splits = report_splits(config, datasets);
  for (const std::string& line : splits.lines) log.info(line);
  warn(log, splits.warnings);
}

}  // namespace

int run_training(const Config& given, Communicator& world, const RunEnvironment& environment, StopSignals& signals) {
  // 1. All ranks agree on the configuration, which no longer changes, and on the data.
  Log log(world.rank() == 0);
  std::vector<std::string> warnings = environment.notes;
  const ResolvedRun run = resolve_run(given, world, environment.fresh, warnings, log);
  const Config& config = run.config;
  Datasets& datasets = *run.datasets;

  // 2. The run directory is prepared, locked, and the same one on all ranks. From here on it has the log.
  const std::unique_ptr<RunLock> lock = prepare_directory(world, config, log);
  require_shared_directory(world, config, environment.host);
  const std::optional<CheckpointReader> own =
      config.checkpoint.resume ? open_newest_checkpoint(world, config.run.directory, warnings) : std::nullopt;
  log.append_to(config.run.directory + "/run.log");
  warn(log, warnings);

  // 3. A run that is complete, or that is to stay stopped, ends here. The stop file stays until a person removes it: a
  //    run that was stopped must not be resumed by the next job in the queue.
  if (const std::string complete = already_complete(world, config, own); !complete.empty()) {
    log.info(complete);
    return 0;
  }
  if (world.any_rank(world.rank() == 0 && stop_file_exists(config.run.directory))) {
    log.info("stopped on {} before the first step; remove that file and run the same command again to continue",
             stop_file_path(config.run.directory));
    signals.ignore_from_now_on();
    return kExitStoppedEarly;
  }

  // 4. Devices and the grid of ranks.
  tell_phase(world, "setting up");
  Compute compute =
      start_compute(config.run, config.precision.dtype(), world, environment.host, environment.local_rank);
  const ProcessGrid grid(world, grid_shape(config), compute.transport.get());
  if (environment.hang_watch != nullptr) {
    environment.hang_watch->know(grid.shape(), !on_host_memory(config.run), config.run.directory);
  }

  // 5. The plan is made, and told with the data.
  const std::vector<MemoryPlan> stages = plan_stages(config, grid.shape(), compute.transport_kind);
  const std::vector<std::string> hosts = world.gather_texts(environment.host, 0);
  log_banner(log, world, environment, config, compute, hosts, stages, datasets.facts(), own.has_value());
  log_data(log, config, datasets);

  // 6. Memory and disk have room for it. The free memory is without a task's examples, which every rank has read.
  const MemoryPlan& plan = stages[static_cast<std::size_t>(grid.at().pipeline)];
  require_memory(world, environment.host, *compute.backend.device, {.device = plan.total(), .host = plan.host},
                 "use fewer ranks per node, a smaller train.micro_batch_size, more tensor or pipeline ranks, or "
                 "recompute.mode = \"full\" (--dry-run says what a rank needs)");
  check_checkpoint_space(world, config, stages);

  // 7. The model is made, and loaded if the run continues. The run's files are written only then: a checkpoint of
  //    another model is refused and its run left as it was.
  TrainingLoop loop(config, grid, compute.backend, datasets, run.tasks, log, signals, time_limits(config, environment),
                    lock.get());
  tell_phase(world, "loading");
  loop.load(own);
  write_config(world, config);
  on_rank_0(world, [&] { datasets.keep_with_run(config.run.directory, log); });
  loop.continue_metrics();
  record_start(log, environment, config, compute, hosts, loop.step());

  // 8. Training, to the end or until it is stopped.
  return loop.run();
}

}  // namespace megatron
