#include "planning/dry_run/machine_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "base/system/errno_text.h"
#include "base/system/host_name.h"
#include "base/system/launcher.h"
#include "base/system/memory_usage.h"
#include "base/system/storage.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "checkpoint/store/checkpoint.h"
#include "config/schema/run_schedule.h"
#include "distributed/process/cores.h"
#include "monitoring/metrics/progress.h"
#include "monitoring/metrics/run_watch.h"
#include "planning/dry_run/checkpoint_size.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/offload.h"

namespace megatron {

namespace {

// Memory that `ranks_here` ranks take.
double bytes_needed(const std::vector<MemoryPlan>& stages, const DataFacts& data, int ranks_here) {
  double bytes = 0;
  for (const MemoryPlan& stage : stages) bytes += static_cast<double>(stage.total() + stage.host);
  return ranks_here * (bytes / static_cast<double>(stages.size()) + static_cast<double>(data.host_bytes));
}

// Files of offloaded states on this machine.
struct StateFiles {
  double bytes = 0;
  std::optional<DiskSpeed> disk{};
  bool in_memory = true;  // they fit what the run leaves free, so that nothing is read again

  double write_seconds() const { return disk ? save_seconds(static_cast<std::int64_t>(bytes), *disk) : 0; }
  // Waiting of a step. Files in memory are written while the next one computes.
  double step_seconds() const { return in_memory ? 0 : 2 * write_seconds(); }
};

// `needed`: bytes_needed().
StateFiles state_files(const Config& config, const std::vector<MemoryPlan>& stages, int ranks_here,
                       const Machine& machine, double needed) {
  StateFiles files{.bytes = bytes_of_state_files(config, stages, ranks_here)};
  if (files.bytes == 0) return files;
  files.disk = config.optimizer.offload_folder.empty() ? machine.disk : measure_disk(offload_folder(config));
  files.in_memory = !machine.free_memory || needed + files.bytes <= static_cast<double>(*machine.free_memory);
  return files;
}

// Where nothing was measured: what a file system of several disks does.
constexpr double kUsualBytesPerSecond = 1e9;

std::string describe_data(const Config& config, const DataFacts& data) {
  const std::int64_t samples = RunSchedule(config).samples_after(config.train.steps);
  return fmt::format("data      {:.3g} passes over {} of {} tokens\n", epochs_of(samples, data),
                     counted(data.train_samples, "training sample"), config.model.sequence_length);
}

// Seconds of the whole run, where steps of the largest size take `step`.
double run_seconds(const Config& config, double step) {
  const auto step_tokens = static_cast<double>(config.train.global_batch_size * config.model.sequence_length);
  return step * static_cast<double>(RunSchedule(config).tokens_after(config.train.steps)) / step_tokens;
}

// `seconds` of a step, `disk` of which it waits for files of states.
std::string describe_time(const Config& config, double seconds, double disk, const MachineSpeed& speed) {
  const auto step_tokens = static_cast<double>(config.train.global_batch_size * config.model.sequence_length);
  std::string text = fmt::format("time      about {:.2g} s per step", seconds);
  if (disk > 0) text += fmt::format(" ({:.2g} s of it for the states' files)", disk);
  text += fmt::format(", {:.2g} tokens/s", step_tokens / seconds);
  if (const std::int64_t steps = config.train.steps; steps > 0) {
    text += fmt::format(", {} for {}", about(run_seconds(config, seconds)), counted(steps, "step"));
  }
  return text + fmt::format(": an estimate, by {:.0f} GFLOP/s of one rank measured just now\n",
                            1e-9 * speed.product_flops_per_second());
}

// Adds what there is to say about running here, and the obstacles to it.
void describe_here(const Config& config, double needed, const Machine& machine, int ranks_here, MachinePlan& plan) {
  const bool known = machine.free_memory.has_value();
  const double free = known ? static_cast<double>(*machine.free_memory) : needed;
  auto out = std::back_inserter(plan.text);
  fmt::format_to(out, "machine   {}: {} here need{} {} and {} each for the program", machine.name,
                 counted(ranks_here, "rank"), ranks_here == 1 ? "s" : "", format_bytes(needed), program_bytes());
  if (known) fmt::format_to(out, "; {} are free: {}", format_bytes(free), needed <= free ? "it fits" : "too little");
  plan.text += "\n";
  if (needed > free) {
    plan.obstacles.push_back(
        fmt::format("it needs {} of memory, and {} are free", format_bytes(needed), format_bytes(free)));
  }
  const std::int64_t threads = ranks_here * config.run.threads;
  if (threads > machine.cores) {
    fmt::format_to(out, "          {} on {}: they take turns, slower than {}\n",
                   config.run.threads == 1 ? counted(threads, "rank") : counted(threads, "thread"),
                   counted(machine.cores, "core"), counted(machine.cores, config.run.threads == 1 ? "rank" : "thread"));
  }
}

double bytes_of(std::int64_t checkpoints, std::int64_t size) {
  return static_cast<double>(checkpoints) * static_cast<double>(size);
}

/// Says where one checkpoint of `size` bytes, which takes `room` while it is written, or all that the run keeps do not
/// fit the `free` bytes of the disk. Checkpoints that the run has already count as room for these.
void describe_room(const Config& config, std::int64_t size, std::int64_t room, std::int64_t free,
                   std::optional<double> run_seconds, MachinePlan& plan) {
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  const std::string& directory = config.run.directory;
  if (free < room) {
    plan.obstacles.push_back(fmt::format("a checkpoint of {} takes {} in {} while it is written, and {} are free",
                                         bytes(size), bytes(room), directory, bytes(free)));
    return;
  }
  const std::optional<std::int64_t> kept = checkpoints_at_a_time(config, run_seconds);
  const double all = kept ? bytes_of(*kept, size) : 0;
  if (all <= static_cast<double>(free)) return;
  std::int64_t held = 0;
  for (const FoundCheckpoint& found : find_checkpoints(directory)) held += found.bytes;
  if (all <= static_cast<double>(free + held)) return;
  plan.warnings.push_back(fmt::format(
      "{} checkpoints at a time take {} in {}, where {} are free{}: later ones will not be saved; make room, keep "
      "fewer (checkpoint.keep_last) or choose another run.directory",
      *kept, format_bytes(all), directory, bytes(free),
      held > 0 ? fmt::format(" and {} are held by its checkpoints", bytes(held)) : ""));
}

// Whether the files of offloaded states have room next to a checkpoint, and the time that the disk takes for them.
void describe_state_files(const Config& config, const StateFiles& files, std::int64_t room, const Machine& machine,
                          MachinePlan& plan) {
  if (files.bytes == 0) return;
  const std::string folder = offload_folder(config);
  const bool of_run = config.optimizer.offload_folder.empty();
  const char* const key = of_run ? "run.directory" : "optimizer.offload_folder";
  if (::access((folder + "/").c_str(), W_OK | X_OK) != 0) {  // the slash: a file is no folder
    plan.obstacles.push_back(
        fmt::format("{} = \"{}\" is no folder to write to here: {}", key, folder, errno_text(errno)));
    return;
  }
  const double needed = files.bytes + (of_run ? static_cast<double>(room) : 0);
  plan.text += fmt::format("offload   files of {} in {}", format_bytes(files.bytes), folder);
  if (files.disk) {
    const double seconds = files.in_memory ? files.write_seconds() : files.step_seconds();
    plan.text += fmt::format("; {} in about {}",
                             files.in_memory ? "free memory holds them, and after each step the disk writes them"
                                             : "free memory does not hold them: each step reads and writes them",
                             seconds < 1 ? fmt::format("{:.2g} s", seconds) : about(seconds));
  }
  plan.text += "\n";
  if (const std::string storage = storage_that_is_no_local_disk(folder); !storage.empty()) {
    plan.warnings.push_back(fmt::format(
        "{} = \"{}\" is on {}, {}: name a folder on a disk of each node with optimizer.offload_folder", key, folder,
        storage, storage == "tmpfs" ? "which is memory" : "over which each step reads and writes all states"));
  }
  const std::optional<std::int64_t> free = of_run ? machine.free_disk : free_space(folder);
  if (free && static_cast<double>(*free) < needed) {
    plan.obstacles.push_back(fmt::format("the optimizer's state{} needs {} in {}, and {} are free",
                                         of_run && room > 0 ? " with a checkpoint" : "", format_bytes(needed), folder,
                                         format_bytes(static_cast<double>(*free))));
  }
}

}  // namespace

std::string describe_disk(const Config& config, std::int64_t size, const Machine* machine,
                          std::optional<double> run_seconds) {
  const std::optional<std::int64_t> kept = checkpoints_at_a_time(config, run_seconds);
  if (kept == 0) return "disk      no checkpoints are written but by a stop\n";
  std::string text = fmt::format("disk      a checkpoint is {}", format_bytes(static_cast<double>(size)));
  if (!kept) text += ", and all are kept";
  if (kept && *kept > 1) {
    text += fmt::format(", {} at a time {}", *kept, format_bytes(bytes_of(*kept, size)));
  }
  const bool measured = machine != nullptr && machine->disk;
  const double save = save_seconds(size, measured ? *machine->disk : DiskSpeed{0, kUsualBytesPerSecond});
  text += fmt::format("; a save takes about {}{}", save < 1 ? fmt::format("{:.2g} s", save) : about(save),
                      measured ? "" : " at 1 GB/s");
  if (machine != nullptr && machine->free_disk) {
    text +=
        fmt::format("; {} free in {}", format_bytes(static_cast<double>(*machine->free_disk)), config.run.directory);
  }
  return text + "\n";
}

int most_ranks_here(int cores) {
  return 16 * cores;
}

Machine examine_machine(const Config& config) {
  const RankCores cores = cores_of_process(host_name());
  // A launcher's binding is of this rank alone.
  const bool all = cores.cores.empty() || rank_by_launcher();
  Machine machine{.name = cores.host,
                  .cores = all ? cores.of_host : static_cast<int>(cores.cores.size()),
                  .free_memory = free_memory_bytes()};
  machine.free_disk = free_space(config.run.directory);
  machine.disk = measure_disk(existing_folder(config.run.directory));
  return machine;
}

Machine measure_machine(const Config& config) {
  Machine machine = examine_machine(config);
  if (on_host_memory(config.run)) machine.speed = measure_speed(config);
  return machine;
}

MachinePlan plan_for_machine(const Config& config, const std::vector<MemoryPlan>& stages, const DataFacts* data,
                             const Machine& machine, int ranks_here) {
  MachinePlan plan;
  if (data != nullptr && data->train_samples > 0 && config.train.steps > 0) plan.text += describe_data(config, *data);
  const bool elsewhere = ranks_here > most_ranks_here(machine.cores);
  const std::int64_t size = planned_checkpoint_bytes(config, stages);
  const double needed = bytes_needed(stages, data != nullptr ? *data : DataFacts{}, ranks_here);
  const StateFiles files = elsewhere ? StateFiles{} : state_files(config, stages, ranks_here, machine, needed);
  std::optional<double> step, run;
  if (!elsewhere && on_host_memory(config.run) && machine.speed.flops_per_second > 0) {
    step = step_seconds(config, stages, machine.speed, ranks_here, machine.cores) + files.step_seconds();
    if (config.train.steps > 0) run = run_seconds(config, *step);
  }
  plan.text += describe_disk(config, size, elsewhere ? nullptr : &machine, run);
  if (elsewhere) {
    plan.text += fmt::format(
        "machine   not this one: {} are more than its {} would run; nothing here is about its memory, disk or speed\n",
        counted(ranks_here, "rank"), counted(machine.cores, "core"));
    return plan;
  }
  if (machine.free_disk && !config.checkpoint.never) {
    describe_room(config, size, free_bytes_for_checkpoint(config, stages), *machine.free_disk, run, plan);
  }
  describe_state_files(config, files, config.checkpoint.never ? 0 : free_bytes_for_checkpoint(config, stages), machine,
                       plan);
  if (on_host_memory(config.run)) {
    describe_here(config, needed, machine, ranks_here, plan);
    if (step) plan.text += describe_time(config, *step, files.step_seconds(), machine.speed);
  } else {
    plan.text += "machine   the memory and speed of GPUs are not examined\n";
  }
  return plan;
}

}  // namespace megatron
