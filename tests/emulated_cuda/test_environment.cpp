// What the program asks of CUDA before its first call, by the environment.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "cuda/cuda_support.h"

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
