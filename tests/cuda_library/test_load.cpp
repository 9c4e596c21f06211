// A program calls the library that lies next to it if both are of one build, and says what is wrong if not. Each case
// has its own library there (CMakeLists.txt), so that it runs by its tag alone.
#include <string>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "base/core/error.h"
#include "cuda/build_name.h"
#include "support/catch.h"

using namespace megatron;

namespace {

void check_refused(const std::string& its_build) {
  const CudaSupport& support = cuda_support();
  CHECK(support.devices == 0);
  const std::vector<std::string> parts = {"libmegatron_cuda.so is of another build", "(" + its_build + ")",
                                          "(" MEGATRON_BUILD_NAME ")", "build both again", "run.device = \"cpu\""};
  for (const std::string& part : parts) {
    CHECK_THAT(support.obstacle, Contains(part));
  }
  CHECK_THROWS_WITH(make_cuda_backend(0), Equals(support.obstacle));
}

}  // namespace

TEST_CASE("a library of the program's own build is called", "[.][own_cuda_library]") {
  CHECK(cuda_support().obstacle.empty());
  CHECK(cuda_support().description == "three devices");
}

TEST_CASE("a library of another build is not called, and both are named", "[.][other_cuda_library]") {
  check_refused("0.0.9, interface 0123456789ab");
}

TEST_CASE("a library that has no name is not called", "[.][nameless_cuda_library]") {
  check_refused("one without a name");
}
