// A device with separate memory, which works while the host does something else, trains the same numbers to the
// last bit as the host itself: steps, evaluations, checks, saves, resumes, skipped steps and their explanation, text.
// Following a pointer into it on the host ends this program.
#include <limits>
#include <map>
#include <sstream>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/staged_communicator.h"
#include "inference/decoding/generate.h"
#include "inference/decoding/inference_model.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/loop_on_threads.h"
#include "training/diagnostics/tensor_comparison.h"
#include "training/loop/rank_files.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;
using communicator_cases::expect;

namespace {

constexpr int kDeviceSteps = 4;

Config config_of(const ShardFolder& folder, bool many_ranks) {
  Config config = tiny_config();
  if (many_ranks) {
    config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 2;
    config.parallel.sequence_parallel = true;
    config.parallel.overlap_gradients = true;
    config.optimizer.share = "state";
  }
  config.data.train = config.data.validation = make_corpus(folder);
  config.train.steps = kDeviceSteps;
  config.train.evaluate_every = 2;
  config.train.evaluate_steps = 1;
  config.train.check_replicas_every = 1;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_last = 0;
  return config;
}

Config on_device(Config config) {
  config.run.device = "cuda";
  config.run.communication = "mpi";
  return config;
}

/// Every digit of what was measured of the model, not of the clock.
std::vector<std::string> numbers_of(const LoopResult& result) {
  std::vector<std::string> lines;
  for (const nlohmann::json& line : result.metrics) {
    lines.push_back(fmt::format("{} {} {} {} {} {}", line.at("kind").dump(), line.at("step").dump(),
                                line.at("loss").dump(), line.value("grad_norm", nlohmann::json()).dump(),
                                line.value("learning_rate", nlohmann::json()).dump(), line.value("skipped", 0)));
  }
  return lines;
}

std::map<std::string, std::string> files_of_step(const std::string& directory, int step) {
  return rank_files(fmt::format("{}/checkpoints/step_{:08}", directory, step));
}

/// The lines of run.log about steps that were skipped.
std::vector<std::string> skips(const LoopResult& result) {
  std::vector<std::string> lines;
  std::istringstream log(result.log);
  for (std::string line; std::getline(log, line);) {
    if (line.find("is skipped") != std::string::npos) lines.push_back(line.substr(line.find("step ")));
  }
  return lines;
}

Compute compute_of(Backend backend, Communicator& world) {
  Compute compute{std::move(backend), TransportKind::staged, nullptr, ""};
  compute.transport = staged_transport(world, *compute.backend.device);
  return compute;
}

/// The third step's first backward of a norm goes wrong on rank 0.
void poison(InjectedOps& ops, const ProcessGrid& grid) {
  if (grid.world().rank() != 0) return;
  const int layers = 4 / grid.pipeline().size(), micro_batches = 8 / grid.data().size();
  const int step = micro_batches * (2 * layers + (grid.last_stage() ? 1 : 0));
  ops.after_norm_backward = [=, calls = 0](const LayerNormBackwardArgs& args) mutable {
    if (calls++ == 2 * step) args.dx.as<float>()[0] = std::numeric_limits<float>::infinity();
  };
}

}  // namespace

TEST_CASE("separate device: a whole run does what the host does bit for bit") {
  const bool many_ranks = GENERATE(false, true);
  using Variant = void (*)(ModelConfig&);
  const auto encoder = GENERATE(Variant{nullptr}, Variant{like_megatron_bert}, Variant{like_t5});
  const ShardFolder folder;
  Config config = config_of(folder, many_ranks);
  if (encoder != nullptr) {
    encoder(config.model);
    config.data.train = config.data.validation = make_sentence_corpus(folder);
  }
  config.run.directory = folder.file("host");
  const LoopResult host = run_loop(config);
  REQUIRE(host.told == std::vector<std::string>(many_ranks ? 8 : 1));
  const std::vector<std::string> numbers = numbers_of(host);
  REQUIRE(numbers.size() > kDeviceSteps);

  Config device = on_device(config);
  for (const Copies copies : {Copies::early, Copies::late}) {
    INFO((copies == Copies::early ? "early" : "late"));
    device.run.directory = folder.file(copies == Copies::early ? "early" : "late");
    const LoopResult there = run_loop(device, nullptr, nullptr, copies);
    CHECK(there.told == host.told);
    CHECK(numbers_of(there) == numbers);
    for (const int step : {1, kDeviceSteps})
      CHECK(files_of_step(device.run.directory, step) == files_of_step(config.run.directory, step));
  }

  INFO("resumed from what the host has saved");
  device.run.directory = folder.file("resumed");
  device.checkpoint.load = folder.file("host/checkpoints/step_00000002");
  CHECK(run_loop(device).told == host.told);
  CHECK(files_of_step(device.run.directory, kDeviceSteps) == files_of_step(config.run.directory, kDeviceSteps));
}

TEST_CASE("separate device: a bad step is found and explained as on the host") {
  const bool many_ranks = GENERATE(false, true);
  const ShardFolder folder;
  Config config = config_of(folder, many_ranks);
  config.run.directory = folder.file("host");
  const LoopResult host = run_loop(config, poison);
  REQUIRE(skips(host).size() == 1);
  REQUIRE(skips(host)[0].find("step 3 is skipped: the loss is finite") == 0);

  config = on_device(config);
  config.run.directory = folder.file("device");
  const LoopResult there = run_loop(config, poison);
  CHECK(skips(there) == skips(host));
  CHECK(numbers_of(there) == numbers_of(host));
  CHECK(files_of_step(folder.file("device"), kDeviceSteps) == files_of_step(folder.file("host"), kDeviceSteps));
}

TEST_CASE("a device with separate memory writes the text that the host writes") {
  const ShardFolder folder;
  Config config = config_of(folder, false);
  config.run.directory = folder.file("run");
  run_loop(config);
  const auto text = [&](Backend backend, const char* device) {
    std::vector<std::int32_t> tokens;
    run_as_threads(1, [&](Communicator& world) {
      std::vector<std::string> warnings;
      const CheckpointReader checkpoint = open_named_checkpoint(world, config.run.directory, warnings);
      Config own = config_for_inference(checkpoint);
      own.run.device = device;
      const std::vector<GenerationJob> jobs = {{.tokens = {49}}};
      GenerationOptions options;
      options.sampling = {.max_new_tokens = 30, .temperature = 0.8};
      options.ends = {-1};
      Decoder decoder(own, grid_shape(own), world, compute_of(std::move(backend), world), DType::f32,
                      sizes_for(jobs, options, own.model.sequence_length, 1, 1));
      decoder.load(world, checkpoint);
      tokens = generate(decoder, jobs, options, nullptr, nullptr).front().tokens;
    });
    return tokens;
  };
  const std::vector<std::int32_t> host = text(make_cpu_backend(), "cpu");
  REQUIRE(host.size() == 30);
  CHECK(text(make_separate_backend(), "cuda") == host);
}

TEST_CASE("separate device: the host never waits and memory is as planned") {
  const ShardFolder folder;
  const bool many_ranks = GENERATE(false, true);
  const Config config = on_device(config_of(folder, many_ranks));
  run_as_threads(many_ranks ? 8 : 1, [&](Communicator& world) {
    Config own = config;
    Datasets datasets(own);
    const DataFacts facts = datasets.facts();
    resolve(own, world.size(), &facts);
    Compute compute = compute_of(make_separate_backend(), world);
    auto& device = dynamic_cast<SeparateDevice&>(*compute.backend.device);
    const ProcessGrid grid(world, grid_shape(own), compute.transport.get());
    Trainer trainer(own, grid, compute.backend, datasets);
    std::size_t threads_lack = 0;  // staging of sums, which MPI needs and threads do not
    for (const StagingPlan& plan : trainer.replica().plan().staging) threads_lack += plan.reductions.bytes();
    MemoryUse planned = trainer.replica().plan();
    expect(!many_ranks || planned.host > threads_lack, "no pinned memory is planned");
    planned.host -= threads_lack;
    planned.kernels = 0;  // theirs are the CPU's, and planned as a GPU's
    for (int step = 1; step <= 3; ++step) {
      const int before = device.host_waits();
      const std::size_t pinned = device.pinned_bytes();
      trainer.train_step();
      const int waits = device.host_waits() - before;  // asking whether the step's numbers are there is none
      expect(step == 1 || waits == 0, "{} waits in step {}", waits, step);
      expect(step == 1 || device.pinned_bytes() == pinned, "pinned memory grew in step {}", step);
      MemoryUse used = trainer.used();
      used.kernels = 0;
      expect(used == planned, "used {} and {} of the host, planned {} and {}", used.total(), used.host, planned.total(),
             planned.host);
    }
  });
}

TEST_CASE("gradients that lie on devices are compared with one rank's") {
  const ShardFolder folder;
  const auto train = [&](Config config, Communicator& world, const auto& then) {
    Datasets datasets(config);
    const DataFacts facts = datasets.facts();
    resolve(config, world.size(), &facts);
    Compute compute = compute_of(make_separate_backend(), world);
    const ProcessGrid grid(world, grid_shape(config), compute.transport.get());
    Trainer trainer(config, grid, compute.backend, datasets);
    trainer.train_step();
    then(trainer.replica(), *compute.backend.device);
  };
  const Config one = on_device(config_of(folder, false)), many = on_device(config_of(folder, true));
  WholeTensors reference;
  run_as_threads(1, [&](Communicator& world) {
    train(one, world, [&](const Replica& replica, Device& device) {
      reference = WholeTensors::of_gradients(replica.summed_gradients(), replica.store().all(), 1, device);
    });
  });
  REQUIRE(reference.tensors.size() > 50);
  run_as_threads(8, [&](Communicator& world) {
    train(many, world, [&](const Replica& replica, Device& device) {
      for (const TensorDeviation& difference :
           compare_tensors(world, world.rank() == 0 ? &reference : nullptr, replica.summed_gradients(), 1, device)) {
        expect(difference.relative < 5e-5, "{} differs by {}", difference.name, difference.relative);
      }
    });
  });
}
