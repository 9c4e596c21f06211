// Settings of CUDA that the program makes in the environment before its first call.
#include <cstdlib>
#include <string>

#include "backend/ops/backends.h"
#include "cuda/cuda_support.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("CUDA's environment: set where the user has not set it") {
  const std::string connections = "CUDA_DEVICE_MAX_CONNECTIONS", loading = "CUDA_MODULE_LOADING";
  unsetenv(connections.c_str());
  unsetenv(loading.c_str());
  (void)visible_gpus();
  CHECK(std::string(getenv(connections.c_str())) == "32");
  CHECK(std::string(getenv(loading.c_str())) == "EAGER");
  setenv(connections.c_str(), "8", 1);
  setenv(loading.c_str(), "LAZY", 1);
  (void)visible_gpus();
  CHECK(std::string(getenv(connections.c_str())) == "8");
  CHECK(std::string(getenv(loading.c_str())) == "LAZY");
  unsetenv(connections.c_str());
  unsetenv(loading.c_str());
}

TEST_CASE("CUDA: a driver that is too old is unusable, not one without devices") {
  const std::string driver = "MEGATRON_EMULATED_DRIVER";
  setenv(driver.c_str(), "old", 1);
  CHECK(visible_gpus().unusable == "the driver is older than the runtime");
  CHECK(describe_cuda().unusable == "the driver is older than the runtime");
  CHECK(describe_cuda().devices == 0);
  setenv(driver.c_str(), "idle", 1);
  CHECK(visible_gpus().unusable.empty());
  CHECK(visible_gpus().usable.empty());
  unsetenv(driver.c_str());
  CHECK(visible_gpus().usable.size() == 1);
}
