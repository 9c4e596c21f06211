// Statements of a plan about the machine it is made on, and the layout of plans.
#include <sys/vfs.h>

#include <filesystem>
#include <sstream>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "base/system/storage.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "checkpoint/store/checkpoint.h"
#include "distributed/comm/thread_communicator.h"
#include "planning/dry_run/checkpoint_size.h"
#include "planning/dry_run/dry_run.h"
#include "planning/dry_run/machine_plan.h"
#include "planning/dry_run/plan_text.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/small_corpus.h"
#include "support/temporary_folder.h"
#include "training/step/compute.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Planned {
  Config config = tiny_config();
  std::vector<MemoryPlan> stages;
  DataFacts data{.vocab_size = 50, .train_samples = 40};

  explicit Planned(int ranks, std::int64_t tensor = 1) {
    config.data.train = "corpus";
    config.parallel.tensor = tensor;
    config.parallel.data = 0;
    config.train.micro_batch_size = 1;
    config.train.global_batch_size = 64;
    config.train.steps = 25;
    config.checkpoint.every_steps = 10;
    config.run = choose_planned_device(config.run);
    resolve(config, ranks, &data);
    stages = plan_stages(config, grid_shape(config));
  }
  MachinePlan on(const Machine& machine, int ranks_here) const {
    return plan_for_machine(config, stages, &data, machine, ranks_here);
  }
};

Machine small_machine() {
  return {.name = "node7",
          .cores = 2,
          .free_memory = std::size_t{1} << 30,
          .free_disk = std::int64_t{1} << 30,
          .speed = {.flops_per_second = 1e9, .bytes_per_second = 1e9},
          .disk = DiskSpeed{.seconds_per_sync = 0, .bytes_per_second = 1e8}};
}

}  // namespace

TEST_CASE("machine plan: passes over the data, disk, memory and time are answered") {
  const Planned planned(1);
  const MachinePlan plan = planned.on(small_machine(), 1);
  CHECK(plan.obstacles.empty());
  CHECK_THAT(plan.text, Contains("data      40 passes over 40 training samples of 16 tokens\n"));
  CHECK_THAT(plan.text, Contains("disk      a checkpoint is 6") && Contains(" KiB, 3 at a time ") &&
                            Contains("; a save takes about 0.00") && Contains("; 1.00 GiB free in "));
  CHECK_THAT(plan.text, Contains("machine   node7: 1 rank here needs ") &&
                            Contains(" and 30 to 80 MiB each for the program; 1.00 GiB are free: it fits\n"));
  CHECK_THAT(plan.text, Contains(" s per step, ") && Contains(" tokens/s, ") &&
                            Contains(" for 25 steps: an estimate, "
                                     "by 1 GFLOP/s of one rank"));
  CHECK_THAT(plan.text, !Contains("take turns"));
}

TEST_CASE("machine plan: what is in the way is said, also where it still runs") {
  const Planned planned(8, 2);
  Machine machine = small_machine();
  CHECK_THAT(planned.on(machine, 8).text, Contains("8 ranks on 2 cores: they take turns, slower than 2 ranks\n"));
  CHECK(planned.on(machine, 8).obstacles.empty());
  machine.free_memory = 1000;
  machine.free_disk = 2000;
  const MachinePlan plan = planned.on(machine, 8);
  CHECK_THAT(plan.text, Contains("1000 B are free: too little\n"));
  REQUIRE(plan.obstacles.size() == 2);
  CHECK_THAT(plan.obstacles[0], Contains("a checkpoint of ") && Contains("while it is written, and 2.0 KiB are free"));
  CHECK_THAT(plan.obstacles[1], Contains("of memory, and 1000 B are free"));
  // Unknown amounts of memory and disk are no obstacles.
  CHECK(planned.on({.name = "node7", .cores = 2}, 8).obstacles.empty());
}

TEST_CASE("machine plan: what a checkpoint needs is what the start asks for") {
  const TemporaryFolder folder;
  Planned planned(1);
  planned.config.run.directory = folder.file("run");
  const std::int64_t size = planned_checkpoint_bytes(planned.config, planned.stages);
  const std::int64_t room = free_bytes_for_checkpoint(planned.config, planned.stages);
  REQUIRE(size < room);
  Machine machine = small_machine();
  machine.free_disk = room - 1;
  REQUIRE(planned.on(machine, 1).obstacles.size() == 1);
  CHECK_THAT(planned.on(machine, 1).obstacles[0],
             Contains(" takes " + format_bytes(static_cast<double>(room)) + " in "));
  CHECK(planned.on(machine, 1).warnings.empty());
  machine.free_disk = room;
  CHECK(planned.on(machine, 1).obstacles.empty());
}

TEST_CASE("machine plan: files of states need room, and a disk") {
  const TemporaryFolder folder;
  Planned planned(2);
  planned.config.optimizer.offload = "file";
  planned.config.optimizer.offload_folder = folder.path();
  const std::size_t needed = planned.stages[0].total();
  planned.stages = plan_stages(planned.config, grid_shape(planned.config));
  CHECK(planned.stages[0].total() + planned.stages[0].file == needed);
  const MachinePlan plan = planned.on(small_machine(), 2);
  CHECK_THAT(plan.text, Contains("offload   files of 835.0 KiB in " + folder.path()));
  CHECK(plan.obstacles.empty());

  // At 100 MB/s, the 855,040 bytes are written in 9 ms, or written and read in 17 ms, for which the step waits.
  planned.config.optimizer.offload_folder.clear();
  planned.config.run.directory = folder.path();
  Machine machine = small_machine();
  const MachinePlan cached = planned.on(machine, 2);
  CHECK_THAT(cached.text,
             Contains("; free memory holds them, and after each step the disk writes them in about 0.0086 s\n"));
  CHECK_THAT(cached.text, !Contains(" for the states' files"));
  machine.free_memory = 2 * planned.stages[0].total() + 2 * planned.stages[0].file - 1;
  const MachinePlan waiting = planned.on(machine, 2);
  CHECK(waiting.obstacles.empty());
  CHECK_THAT(waiting.text,
             Contains("; free memory does not hold them: each step reads and writes them in about 0.017 s\n"));
  CHECK_THAT(waiting.text, Contains(" s per step (0.017 s of it for the states' files), "));
  planned.config.optimizer.offload_folder = folder.path();

  planned.stages[0].fullest.file = std::size_t{1} << 60;
  const MachinePlan large = planned.on(small_machine(), 2);
  REQUIRE(large.obstacles.size() == 1);
  CHECK_THAT(large.obstacles[0],
             Contains("the optimizer's state needs ") && Contains(" in " + folder.path() + ", and "));
  planned.stages[0].fullest.file = 1;
  planned.config.optimizer.offload_folder = folder.file("missing");
  const MachinePlan missing = planned.on(small_machine(), 2);
  REQUIRE(missing.obstacles.size() == 1);
  CHECK_THAT(missing.obstacles[0], Contains("missing\" is no folder to write to here: No such file or directory"));
  CHECK(storage_that_is_no_local_disk("/proc") == "");
  // Its magic number as the kernel says it, not as the function under test does.
  struct statfs shared_memory {};
  if (::statfs("/dev/shm", &shared_memory) != 0 || shared_memory.f_type != 0x01021994) return;
  planned.config.optimizer.offload_folder = "/dev/shm";
  const MachinePlan in_memory = planned.on(small_machine(), 2);
  REQUIRE(in_memory.warnings.size() == 1);
  CHECK_THAT(in_memory.warnings[0],
             Contains("offload_folder = \"/dev/shm\" is on tmpfs, which is memory: name a folder"));
}

TEST_CASE("machine plan: checkpoints that are kept and do not fit are a warning") {
  const TemporaryFolder folder;
  Planned planned(1);
  planned.config.run.directory = folder.file("run");
  planned.config.train.steps = 1000;
  planned.config.checkpoint.keep_last = 99;  // and the next one
  const std::int64_t size = planned_checkpoint_bytes(planned.config, planned.stages);
  Machine machine = small_machine();
  machine.free_disk = 100 * size - 1;
  const MachinePlan plan = planned.on(machine, 1);
  CHECK(plan.obstacles.empty());
  REQUIRE(plan.warnings.size() == 1);
  CHECK_THAT(plan.warnings[0], Contains("100 checkpoints at a time take ") && Contains("keep_last"));
  machine.free_disk = 100 * size;
  CHECK(planned.on(machine, 1).warnings.empty());
}

TEST_CASE("machine plan: checkpoints that the run has count as room") {
  const TemporaryFolder folder;
  Planned planned(1);
  const std::string& run = planned.config.run.directory = folder.file("run");
  planned.config.train.steps = 1000;
  planned.config.checkpoint.keep_last = 99;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<float> numbers(1000);
    CpuDevice device;
    save_checkpoint(world, run, {.step = 4},
                    {{"all", {1000}, {{0}, {1000}}, 0, 1000, Tensor(numbers.data(), {1000}, DType::f32)}}, device);
  });
  const std::int64_t held = find_checkpoints(run).at(0).bytes;
  const std::int64_t all = 100 * planned_checkpoint_bytes(planned.config, planned.stages);
  Machine machine = small_machine();
  machine.free_disk = all - held;
  CHECK(planned.on(machine, 1).warnings.empty());
  --*machine.free_disk;
  const MachinePlan plan = planned.on(machine, 1);
  REQUIRE(plan.warnings.size() == 1);
  CHECK_THAT(plan.warnings[0], Contains(fmt::format("where {} are free and {} are held by its checkpoints: later ones",
                                                    format_bytes(static_cast<double>(*machine.free_disk)),
                                                    format_bytes(static_cast<double>(held)))));
}

TEST_CASE("machine plan: a cluster's run says nothing about this machine") {
  const Planned planned(64);
  const MachinePlan plan = planned.on(small_machine(), 64);
  CHECK_THAT(plan.text, Contains("machine   not this one: 64 ranks are more than its 2 cores would run"));
  CHECK_THAT(plan.text, !Contains("free") && !Contains("\ntime") && Contains("a checkpoint is"));
  CHECK(plan.obstacles.empty());
}

TEST_CASE("dry run: it says it can be trained only where it can") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = 3;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 1 << 16;
  config.parallel.data = 0;
  CHECK_THAT(dry_run(config, 1), Contains("this run can be trained as it is\n"));
  CHECK_THAT(dry_run(config, 1 << 16), Contains("not this one: 65536 ranks") &&
                                           Contains("can be trained where its ranks have what they need\n") &&
                                           !Contains("as it is"));
  config.model.hidden_size = 65536;
  config.model.layers = 4;
  config.model.ffn_hidden_size = 0;
  CHECK_THAT(dry_run(config, 1), Contains("this run cannot be trained on this machine: ") && Contains("it needs ") &&
                                     Contains(" of memory, and ") && !Contains("as it is"));
}

TEST_CASE("dry run: the checkpoint that a start needs must be there and complete") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = 3;
  config.run.directory = folder.file("run");
  CHECK_THAT(dry_run(config, 1), Contains("this run can be trained as it is\n"));
  for (std::string CheckpointConfig::*key : {&CheckpointConfig::load, &CheckpointConfig::initialize_from}) {
    Config other = config;
    other.checkpoint.*key = folder.file("nothere");
    const std::string name = key == &CheckpointConfig::load ? "load" : "initialize_from";
    const std::string obstacle = fmt::format("checkpoint.{}: {} is no folder", name, folder.file("nothere"));
    CHECK_THAT(dry_run(other, 1), Contains("cannot be trained on this machine: " + obstacle));
    other.data.train = folder.file("no_data");  // planned without
    CHECK_THAT(dry_run(other, 1), Contains("cannot be trained on this machine: " + obstacle));
  }
  // The run's own come first.
  std::filesystem::create_directories(folder.file("run/checkpoints/step_00000003"));
  CHECK_THAT(dry_run(config, 1), Contains("cannot be trained on this machine: there is no complete checkpoint in ") &&
                                     Contains("step_00000003 is not complete and passed over: manifest.json"));
  config.checkpoint.resume = false;
  CHECK_THAT(dry_run(config, 1), Contains("holds a run already and checkpoint.resume = false\n"));
  write_file(folder.file("file"), "x");
  config.run.directory = folder.file("file/run");
  CHECK_THAT(dry_run(config, 1), Contains(folder.file("file") + " is an existing file and no folder"));
}

TEST_CASE("dry run: a task's file that is there and is wrong is an error", "[fault-130]") {
  const TemporaryFolder folder;
  Config config = tiny_config();
  config.task.name = "instructions";
  config.task.tokenizer = "byte";
  config.train.steps = 3;
  config.data.train = folder.file("chat.jsonl");
  CHECK_THAT(dry_run(config, 1), Contains("data: planned without (" + folder.file("chat.jsonl")));
  write_file(folder.file("chat.jsonl"), "question\tanswer\n1\t2\n");
  require_error(ErrorKind::data, {folder.file("chat.jsonl")}, [&] { dry_run(config, 1); });
  // One of several files that is missing is planned without, as all of them are.
  write_file(folder.file("chat.jsonl"), "{\"prompt\": \"1\", \"completion\": \"2\"}\n");
  config.data.validation = folder.file("more.jsonl");
  CHECK_THAT(dry_run(config, 1), Contains("data: planned without (" + folder.file("more.jsonl")));
  std::swap(config.data.train, config.data.validation);
  CHECK_THAT(dry_run(config, 1), Contains("data: planned without (" + folder.file("more.jsonl")));
}

TEST_CASE("machine plan: examples that every rank holds are in what is needed") {
  Planned planned(8, 2);
  Machine machine = small_machine();
  planned.data.host_bytes = std::size_t{100} << 20;
  const MachinePlan plan = planned.on(machine, 8);
  CHECK_THAT(plan.text, Contains("8 ranks here need 80") && Contains("it fits"));
  planned.data.host_bytes = std::size_t{200} << 20;
  CHECK(planned.on(machine, 8).obstacles.size() == 1);
}

TEST_CASE("time estimate: all columns of a question, no vocabulary of a task") {
  Planned planned(1);
  Config& config = planned.config;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  const MachineSpeed speed{.flops_per_second = 1e9, .bytes_per_second = 1e9};
  const auto elements = [&] { return work_seconds(config, MemoryPlan{}, speed); };  // layers and head alone
  const double next_tokens = elements();
  config.model.task_outputs = 1;
  const double labels = elements();
  CHECK(labels < next_tokens);
  config.model.vocab_size = 1000;
  CHECK(elements() == labels);
  config.model.task_choices = 4;
  CHECK(elements() == Approx(4 * labels));
}

TEST_CASE("time estimate: an update moves each of the optimizer's states twice") {
  const Config config = Planned(1).config;
  const MachineSpeed speed{.flops_per_second = 1e9, .bytes_per_second = 1e9};
  const auto seconds = [&](std::int64_t states) {
    MemoryPlan plan;
    plan.updated = 1000;
    plan.updated_states = states * plan.updated;
    return work_seconds(config, plan, speed) - work_seconds(config, MemoryPlan{}, speed);
  };
  CHECK(seconds(2) == Approx(12 * 4 * 1000 / 1e9));
  CHECK(seconds(0) == Approx(8 * 4 * 1000 / 1e9));
}

TEST_CASE("time estimate: products of weights have the rate of their type") {
  const Config config = Planned(1).config;
  MachineSpeed speed{.flops_per_second = 1e9, .bytes_per_second = 1e9};
  const auto seconds = [&](double MemoryPlan::*flops) {
    MemoryPlan plan;
    plan.*flops = 6e9;
    return work_seconds(config, plan, speed) - work_seconds(config, MemoryPlan{}, speed);
  };
  CHECK(seconds(&MemoryPlan::matmul_flops) == Approx(6));
  speed.half_flops_per_second = 4e9;
  CHECK(seconds(&MemoryPlan::matmul_flops) == Approx(1.5));
  CHECK(seconds(&MemoryPlan::update_flops) == Approx(6));
}

TEST_CASE("time estimate: ranks that share cores take turns, a pipeline waits") {
  const Planned one(1), eight(8);
  const MachineSpeed speed{.flops_per_second = 1e9, .bytes_per_second = 1e9};
  const double alone = step_seconds(one.config, one.stages, speed, 1, 2);
  CHECK(alone == Approx(work_seconds(one.config, one.stages[0], speed)));
  // An eighth of the work each, and the same work in all.
  CHECK(step_seconds(eight.config, eight.stages, speed, 8, 8) < alone / 4);
  CHECK(step_seconds(eight.config, eight.stages, speed, 8, 2) > alone / 2);
  CHECK(step_seconds(one.config, one.stages, {2e9, 2e9}, 1, 2) < alone);
  CHECK(measure_speed(one.config).flops_per_second > 1e7);
  CHECK(measure_speed(one.config).half_flops_per_second == 0);
  Config half = one.config;
  half.precision.compute = "bf16";
  CHECK(measure_speed(half).half_flops_per_second > 1e7);
}

TEST_CASE("plan: lines have at most 100 columns and no axes that are not there") {
  for (const int ranks : {1, 8}) {
    Planned planned(ranks, ranks == 8 ? 2 : 1);
    const std::string text = describe_plan(planned.config, planned.stages);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.size() <= 100);
    }
    CHECK_THAT(text,
               !Contains("context") && !Contains("gpt:") && !Contains("1 ranks") && !Contains(" 1 micro-batches"));
    CHECK_THAT(text, Contains(ranks == 1 ? "grid      1 rank = tensor 1 x data 1 x pipeline 1"
                                         : "grid      8 ranks = tensor 2 x data 4 x pipeline 1"));
  }
  CHECK(wrapped("short\nlines\n") == "short\nlines\n");
  const std::string words = "label     " + std::string(60, 'a') + " " + std::string(60, 'b') + "\nnext";
  CHECK(wrapped(words) == "label     " + std::string(60, 'a') + "\n          " + std::string(60, 'b') + "\nnext");
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(2, "micro-batch") == "2 micro-batches");
}
