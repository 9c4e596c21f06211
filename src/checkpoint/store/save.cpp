#include <chrono>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/save_work.h"
#include "distributed/comm/agreement.h"

namespace megatron {

SaveReport save_checkpoint(Communicator& world, const std::string& run_directory, const TrainingState& state,
                           const std::vector<TensorSlice>& owned, Device& device, const SaveOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SaveWork save(world, run_directory, state, owned, options);
  SaveReport report;
  try {
    save.prepare();
    agree(
        world, [&] { save.write_rank_file_here(device); }, ErrorKind::filesystem);
    save.gather_manifest();
    agree(
        world,
        [&] {
          if (save.root()) save.publish();
        },
        ErrorKind::filesystem);
    report = save.report();
  } catch (const Error&) {
    // All ranks are here (or the job is ending): none writes into the folder any more.
    if (save.root()) save.discard();
    throw;
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::int64_t room_for_checkpoint(std::int64_t numbers, int ranks) {
  constexpr std::int64_t kTableBytes = 64 << 10, kManifestBytes = 1 << 20;
  return numbers * 4 + kTableBytes * ranks + kManifestBytes;
}

}  // namespace megatron
