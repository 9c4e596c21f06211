// Main of the tests that need a GPU: skipped, visibly, where there is none; a failure where there is one of no use.
#include <cstdio>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "support/session.h"

int main(int argc, char** argv) {
  const megatron::CudaSupport& support = megatron::cuda_support();
  if (support.devices > 0) return megatron::test::run_tests(argc, argv);
  const std::string& fault = support.obstacle.empty() ? support.unusable : support.obstacle;
  if (fault.empty()) {
    std::printf("skipped: no GPU is visible (%s)\n", support.description.c_str());
    return 77;
  }
  std::printf("failed: %s (%s)\n", fault.c_str(), support.description.c_str());
  return 1;
}
