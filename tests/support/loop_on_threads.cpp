#include "support/loop_on_threads.h"

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "training/loop/training_loop.h"
#include "training/step/compute.h"
#include "training/step/grid.h"

namespace megatron::test {

LoopResult run_loop(const Config& config, const std::function<void(InjectedOps&, const ProcessGrid&)>& spoil,
                    const std::function<std::unique_ptr<Communicator>(Communicator&)>& around, Copies copies) {
  const int ranks = static_cast<int>(config.parallel.tensor * config.parallel.context * config.parallel.pipeline *
                                     config.parallel.data);
  LoopResult result;
  result.told.resize(static_cast<std::size_t>(ranks));
  std::filesystem::create_directories(config.run.directory);
  StopSignals signals;
  run_as_threads(ranks, [&](Communicator& threads) {
    const std::unique_ptr<Communicator> wrapped = around ? around(threads) : nullptr;
    Communicator& world = wrapped ? *wrapped : threads;
    Config own = config;
    Datasets datasets(own);
    const DataFacts facts = datasets.facts();
    resolve(own, ranks, &facts);
    Backend backend = make_cpu_backend();
    auto ops = std::make_unique<InjectedOps>(std::move(backend.ops));
    InjectedOps& injected = *ops;
    backend.ops = std::move(ops);
    if (own.run.device == "cuda") backend = make_separate_backend(copies, std::move(backend));
    const std::unique_ptr<Communicator> transport = staged_transport(world, *backend.device);
    const ProcessGrid grid(world, grid_shape(own), transport.get());
    if (spoil) spoil(injected, grid);
    Log log(world.rank() == 0);
    log.append_to(own.run.directory + "/run.log");
    try {
      const std::vector<TrainingTask> tasks = open_evaluation_tasks(own, datasets, world);
      TrainingLoop loop(own, grid, backend, datasets, tasks, log, signals,
                        {.started = Timers::steady_seconds(), .max_minutes = own.run.max_minutes});
      std::vector<std::string> warnings;
      loop.load(open_newest_checkpoint(world, own.run.directory, warnings));
      loop.continue_metrics();
      loop.run();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::communication) throw;
      result.told[static_cast<std::size_t>(world.rank())] = fmt::format("{}: {}", name_of(error.kind()), error.what());
    }
  });
  if (std::filesystem::exists(config.run.directory + "/run.log")) {
    result.log = contents_of(config.run.directory + "/run.log");
  }
  visit_metrics(config.run.directory + "/metrics.jsonl",
                [&](const nlohmann::json& object, std::string_view) { result.metrics.push_back(object); });
  return result;
}

}  // namespace megatron::test
