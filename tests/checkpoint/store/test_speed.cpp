// Not run by default: `test_checkpoint "[.speed]"` prints what saving and loading reach in $TMPDIR.
#include <fmt/format.h>

#include <chrono>

#include "checkpoint/store/layouts.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("speed of saving and loading", "[.speed]") {
  const TemporaryFolder folder;
  std::vector<GlobalTensor> tensors{{"embedding", {16384, 768}}};
  for (int layer = 0; layer < 2; ++layer) {
    tensors.push_back({fmt::format("layers.{}.up", layer), {3072, 768}});
    tensors.push_back({fmt::format("layers.{}.down", layer), {768, 3072}});
    tensors.push_back({fmt::format("layers.{}.bias", layer), {768}});
  }
  const auto report = [](const char* what, double bytes, double seconds) {
    fmt::print("{:<44} {:7.1f} MB {:7.3f} s {:8.0f} MB/s\n", what, bytes / 1e6, seconds, bytes / 1e6 / seconds);
  };
  CpuDevice device;
  for (const int ranks : {1, 2}) {
    const Layout rows = split_along(tensors, ranks, 0);
    double bytes = 0;
    run_as_threads(ranks, [&](Communicator& world) {
      const SliceMemory memory(tensors, rows[static_cast<std::size_t>(world.rank())], 2, 1);
      for (int round = 0; round < 2; ++round) {
        const SaveReport saved = save_checkpoint(world, folder.path(), state_at(1), memory.slices(), device);
        bytes = static_cast<double>(saved.bytes);
        if (world.rank() == 0) report(fmt::format("{} rank(s): save", ranks).c_str(), bytes, saved.seconds);
      }
    });
    for (const int along : {0, 1}) {
      const Layout wanted = split_along(tensors, 2, along);
      run_as_threads(2, [&](Communicator& world) {
        SliceMemory memory(tensors, wanted[static_cast<std::size_t>(world.rank())], 2);
        std::vector<std::string> warnings;
        const auto start = std::chrono::steady_clock::now();
        const auto reader = open_newest_checkpoint(world, folder.path(), warnings);
        const auto verified = std::chrono::steady_clock::now();
        reader->read(world, memory.slices(), device);
        const auto read = std::chrono::steady_clock::now();
        if (world.rank() != 0) return;
        report(" 2 ranks: verify", bytes, std::chrono::duration<double>(verified - start).count());
        report(along == 0 ? " 2 ranks: read rows" : " 2 ranks: read columns", bytes,
               std::chrono::duration<double>(read - verified).count());
      });
    }
  }
}
