// Which GPUs are used: only those that the kernels run on, whichever else are there. Each case has devices of its own
// from the environment (CMakeLists.txt), so that they run by their tags alone.
#include <catch2/catch.hpp>

#include "comm/thread_communicator.h"
#include "ops/ops.h"
#include "support/communicator_cases.h"
#include "support/require_error.h"
#include "train/compute.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a GPU that is too old is not chosen, and said to be so", "[.][old-gpu]") {
  CHECK(cuda_support().devices == 0);
  run_as_threads(2, [](Communicator& world) {
    RunConfig run;
    run.device = "auto";
    run.communication = "auto";
    std::vector<std::string> warnings;
    choose_device(run, world, warnings);
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

TEST_CASE("beside a GPU that is too old the other one is used, as it is", "[.][mixed-gpus]") {
  CHECK(cuda_support().devices == 1);
  CHECK(cuda_support().description.find("1 device; GPU 0 (emulated GPU) has compute capability 7.5") !=
        std::string::npos);
  const Backend backend = make_cuda_backend(0);
  CHECK(backend.device->identity().starts_with("01"));  // CUDA's second
  // And its limits are those that count.
  Buffer memory(*backend.device, 256 * sizeof(float));
  const Tensor x = memory.tensor({1, 1, 1, 256}, DType::f32), lse = memory.tensor({1, 1, 1}, DType::f32);
  require_error(ErrorKind::configuration, {"136 KiB of shared memory", "use smaller heads"}, [&] {
    backend.ops->attention_backward({.dout = x,
                                     .q = x,
                                     .k = x,
                                     .v = x,
                                     .out = x,
                                     .log_sum_exp = lse,
                                     .dq = x,
                                     .dk = x,
                                     .dv = x,
                                     .scale = 1,
                                     .mask = {},
                                     .dropout = {}});
  });
}
