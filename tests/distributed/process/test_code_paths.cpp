#include "distributed/process/code_paths.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("code paths: hosts that compute by other code than the rest are named", "[fault-92]") {
  const std::string wide = "oneDNN 2.6.3 for AVX512_CORE", narrow = "oneDNN 2.6.3 for AVX2";
  CHECK(code_path_warning({"a", "a", "b"}, {wide, wide, wide}).empty());
  CHECK(code_path_warning({"a"}, {wide}).empty());
  CHECK(code_path_warning({"a", "a", "b", "c"}, {wide, wide, narrow, wide}) ==
        "hosts compute by different code, so that numbers differ in their last bits from those of equal hosts:\n"
        "  oneDNN 2.6.3 for AVX2 on b\n  oneDNN 2.6.3 for AVX512_CORE on a c\n"
        "ONEDNN_MAX_CPU_ISA, set to the least of them for all ranks, makes instructions equal");
}
