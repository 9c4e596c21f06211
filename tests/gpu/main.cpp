// Main of the tests that need a GPU: skipped, visibly, where none is.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "ops/device.h"

int main(int argc, char** argv) {
  const megatron::CudaSupport& support = megatron::cuda_support();
  if (!support.obstacle.empty()) {
    std::printf("%s\n", support.obstacle.c_str());
    return 1;
  }
  if (support.devices == 0) {
    std::printf("skipped: no GPU is visible (%s)\n", support.description.c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
