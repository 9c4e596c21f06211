// The device of a job: the meaning of "auto", and refusals with advice. With a CUDA backend it depends on the machine;
// these tests look only at what a build without one must do.
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "planning/dry_run/dry_run.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/require_error.h"
#include "support/small_corpus.h"
#include "support/tiny_training.h"
#include "training/step/compute.h"

using namespace megatron;
using namespace megatron::test;

namespace {

RunConfig run_on(const std::string& device, const std::string& communication) {
  RunConfig run;
  run.device = device;
  run.communication = communication;
  return run;
}

void choose(const std::string& device, const std::string& communication) {
  run_as_threads(3, [&](Communicator& world) {
    std::vector<std::string> warnings;
    choose_device(run_on(device, communication), world, warnings);
  });
}

}  // namespace

TEST_CASE("compute: without signs of a GPU all is silently on the CPU") {
  if (cuda_device_is_likely()) {
    WARN("this machine may have a GPU");
    return;
  }
  run_as_threads(3, [](Communicator& world) {
    for (const char* device : {"auto", "cpu"}) {
      for (const char* communication : {"auto", "mpi"}) {
        std::vector<std::string> warnings;
        const RunConfig run = choose_device(run_on(device, communication), world, warnings);
        communicator_cases::expect(run.device == "cpu" && run.communication == "mpi" && warnings.empty(),
                                   "{} with {} is {} with {}", device, communication, run.device, run.communication);
        const Compute compute = start_compute(run, DType::bf16, world, "host", world.rank());
        communicator_cases::expect(compute.backend.device->is_host_memory() &&
                                       compute.transport_kind == TransportKind::host && compute.transport == nullptr &&
                                       compute.description.empty(),
                                   "a transport of its own on the CPU");
      }
    }
  });
  for (const char* device : {"auto", "cpu"}) {
    require_error(ErrorKind::configuration, {"run.communication = \"nccl\"", "computes on the CPU", "\"mpi\""},
                  [&] { choose(device, "nccl"); });
  }
}

TEST_CASE("a build without CUDA refuses to use it") {
  if (cuda_build().cuda) {
    WARN("this build has the CUDA backend");
    return;
  }
  CHECK(cuda_support().devices == 0);
  CHECK(cuda_support().obstacle.empty());
  require_error(ErrorKind::configuration,
                {"run.device = \"cuda\": this build has no CUDA backend", "use run.device = \"cpu\""},
                [] { choose("cuda", "auto"); });
}

TEST_CASE("the CUDA backend is loaded from its library when it is asked for") {
  if (!cuda_build().cuda) {
    WARN("this build has no CUDA backend");
    return;
  }
  INFO(cuda_support().obstacle);
  CHECK(cuda_support().obstacle.empty());
  CHECK(cuda_support().description.starts_with("CUDA "));
  if (cuda_support().devices > 0) return;
  require_error(ErrorKind::configuration,
                {"run.device = \"cuda\": this process has no CUDA device", "Slurm", "\"cpu\""},
                [] { choose("cuda", "auto"); });
  // Thrown by the library, caught here as what it is.
  require_error(ErrorKind::configuration, {"GPU 0 of the 0 that this process sees"}, [] { make_cuda_backend(0); });
}

TEST_CASE("compute: a plan is for the device asked for on any machine") {
  const RunConfig cuda = choose_planned_device(run_on("cuda", "auto"));
  CHECK(cuda.device == "cuda");
  CHECK_FALSE(on_host_memory(cuda));
  const bool without_nccl = cuda_build().cuda && !cuda_build().nccl;
  CHECK(planned_transport(cuda) == (without_nccl ? TransportKind::staged : TransportKind::nccl));
  CHECK(planned_transport(run_on("cuda", "nccl")) == TransportKind::nccl);
  CHECK(planned_transport(run_on("cuda", "mpi")) == TransportKind::staged);
  const RunConfig cpu = choose_planned_device(run_on("cpu", "auto"));
  CHECK(on_host_memory(cpu));
  CHECK(planned_transport(cpu) == TransportKind::host);
}

TEST_CASE("compute: a plan for CUDA needs no device and tells the memories apart") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.parallel.tensor = config.parallel.data = 2;
  config.data.train = make_corpus(folder);
  config.train.steps = 2;
  config.run.device = "cuda";
  const auto plan = [&](const char* communication) {
    config.run.communication = communication;
    return dry_run(config, 4);
  };
  const std::string nccl = plan("auto"), staged = plan("mpi"),
                    sentence = "of the host's memory: for staged communication";
  CHECK(nccl.find(sentence) == std::string::npos);
  CHECK(staged.find(sentence) != std::string::npos);
  if (!cuda_build().cuda) {
    CHECK(nccl.find("planned for CUDA devices, which this build has no backend for") != std::string::npos);
    CHECK(nccl.find("this run can be trained as it is") == std::string::npos);
  }
  config.run.device = "cpu";
  CHECK(plan("auto").find(sentence) == std::string::npos);
}
