// Ranks of a job multiply bf16 alike.
#include "training/step/code_path.h"

#include "base/core/error.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("bf16 products: hosts that differ are refused by name", "[fault-92]") {
  const auto start = [](const std::vector<std::string>& products) {
    run_as_threads(static_cast<int>(products.size()), [&](Communicator& world) {
      const std::string host = world.rank() < 2 ? "a" : "b";
      require_same_half_products(world, host, products[static_cast<std::size_t>(world.rank())]);
    });
  };
  start({"widened", "widened", "widened"});
  start({"amx_bf16"});
  require_error(ErrorKind::configuration,
                {"in different ways", "\n  amx_bf16 on a\n  avx512_bf16 on b\n", "run.native_16bit = \"off\"",
                 "ONEDNN_MAX_CPU_ISA"},
                [&] {
                  start({"amx_bf16", "amx_bf16", "avx512_bf16"});
                });
}

TEST_CASE("bf16 products: off is widened on every processor") {
  CHECK(chosen_half_products(Native16Bit::off) == "widened");
}
