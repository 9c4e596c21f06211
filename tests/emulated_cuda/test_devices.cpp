// Choice of GPUs: only those are used that the kernels run on, whichever else are there. Each case has its own devices
// from the environment (CMakeLists.txt), so that they run by their tags alone.
#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/require_error.h"
#include "training/step/compute.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a GPU that is too old is not chosen, and said to be so", "[.][old-gpu]") {
  CHECK(cuda_support().devices == 0);
  run_as_threads(2, [](Communicator& world) {
    RunConfig run;
    run.device = "auto";
    run.communication = "auto";
    std::vector<std::string> warnings;
    run = choose_device(run, world, warnings);
    communicator_cases::expect(run.device == "cpu" && run.communication == "mpi", "auto is {}", run.device);
    communicator_cases::expect(warnings.size() == (world.rank() == 0 ? 1 : 0), "{} warnings", warnings.size());
    if (world.rank() != 0) return;
    communicator_cases::expect(warnings[0].find("GPU 0 (emulated GPU) has compute capability 7.5") != std::string::npos,
                               "{}", warnings[0]);
  });
  RunConfig run;
  run.device = "cuda";
  require_error(ErrorKind::configuration, {"no CUDA device to use", "compute capability 7.5", "8.0 or later"}, [&] {
    run_as_threads(1, [&](Communicator& world) {
      std::vector<std::string> warnings;
      choose_device(run, world, warnings);
    });
  });
  require_error(ErrorKind::configuration, {"GPU 0 of the 0", "compute capability 7.5"}, [] { make_cuda_backend(0); });
}

TEST_CASE("devices: next to a GPU that is too old the other one is used", "[.][mixed-gpus]") {
  CHECK(cuda_support().devices == 1);
  CHECK(cuda_support().description.find("1 device; GPU 0 (emulated GPU) has compute capability 7.5") !=
        std::string::npos);
  const Backend backend = make_cuda_backend(0);
  CHECK(backend.device->identity().starts_with("01"));  // CUDA's second
  // And its limits are those that count: f32 heads fit into 99 KiB with 180 elements backward, with 252 forward.
  Buffer memory(*backend.device, 8 * 256 * sizeof(float));
  const auto tensor = [&](int index, std::int64_t size) {
    return memory.tensor({8, 1, 1, size}, DType::f32).slice(0, index, 1);
  };
  const auto differentiate = [&](std::int64_t size) {
    const Tensor log_sum_exp = tensor(7, size).slice(3, 0, 1).view({1, 1, 1});
    backend.ops->fill(memory.tensor({8 * size}, DType::f32), 0);
    backend.ops->fill(memory.tensor({3 * size}, DType::f32), 1);  // q, k and v, hence the output and its gradient
    backend.ops->attention_forward({.q = tensor(0, size),
                                    .k = tensor(1, size),
                                    .v = tensor(2, size),
                                    .out = tensor(3, size),
                                    .log_sum_exp = log_sum_exp,
                                    .scale = 1,
                                    .mask = {},
                                    .dropout = {}});
    backend.ops->attention_backward({.dout = tensor(3, size),
                                     .q = tensor(0, size),
                                     .k = tensor(1, size),
                                     .v = tensor(2, size),
                                     .out = tensor(3, size),
                                     .log_sum_exp = log_sum_exp,
                                     .dq = tensor(4, size),
                                     .dk = tensor(5, size),
                                     .dv = tensor(6, size),
                                     .scale = 1,
                                     .mask = {},
                                     .dropout = {}});
  };
  CHECK_NOTHROW(differentiate(180));
  CHECK(tensor(6, 180).as<float>()[179] == 1);  // one query sees one key: the values' gradient is the output's
  require_error(ErrorKind::configuration, {"100 KiB of shared memory", "use smaller heads"},
                [&] { differentiate(184); });
  require_error(ErrorKind::configuration, {"134 KiB of shared memory", "use smaller heads"},
                [&] { differentiate(252); });
}
