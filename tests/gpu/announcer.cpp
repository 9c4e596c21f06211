// For scripts/gpu_test.sh: a line when a test starts and one when it ends, so that a log that breaks off names the
// test. An error that the device does not recover from, after which every later test would fail, ends the process.
#define CATCH_CONFIG_LISTENER
#include <cstdio>
#include <cstdlib>
#include <string>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "cuda/cuda_check.h"
#include "support/catch.h"

namespace {

constexpr int kDeviceLost = 70;

struct Announcer : CatchListener {
  using CatchListener::CatchListener;

  void testCaseStarting(const CatchTest& test) override {
    running_ = test.name;
    std::printf("RUN  %s\n", test.name.c_str());
    std::fflush(stdout);
  }
  void sectionStarting(const CatchSection& section) override {  // each part of a long test, too: it is alive
    std::printf("     %s\n", section.name.c_str());
    std::fflush(stdout);
    CatchListener::sectionStarting(section);
  }
  void testCaseEnded(const CatchTestResult& test) override {
    const cudaError_t state = megatron::cuda_support().devices > 0 ? cudaDeviceSynchronize() : cudaSuccess;
    const bool passed = test.totals.assertions.failed == 0 && state == cudaSuccess;
    std::printf("%s %s\n", passed ? "PASS" : "FAIL", running_.c_str());
    if (state != cudaSuccess) std::printf("the device is lost: %s\n", cudaGetErrorString(state));
    std::fflush(stdout);
    if (state != cudaSuccess) std::_Exit(kDeviceLost);
  }

 private:
  std::string running_;
};
CATCH_REGISTER_LISTENER(Announcer)

}  // namespace
