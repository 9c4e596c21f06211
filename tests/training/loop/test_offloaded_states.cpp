// optimizer.offload through whole runs: the numbers, the memory and the checkpoints of runs without, and resumes from
// any place of the states to any other.
#include <filesystem>

#include "support/catch.h"
#include "support/check_on_rank.h"
#include "support/require_error.h"
#include "training/loop/resumed_run.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config in_file(Config config, double fraction, const std::string& folder) {
  config.optimizer.offload = "file";
  config.optimizer.offload_fraction = fraction;
  config.optimizer.offload_folder = folder;
  return config;
}

}  // namespace

TEST_CASE("offload: runs with states in files have the numbers of others", "[fault-17]") {
  const ShardFolder folder;
  const Mode mode = GENERATE(Mode{"one rank"}, Mode{"bf16", 1, 1, 1, "none", "bf16"},
                             Mode{"sequence, divided", 2, 2, 1, "state", "bf16", true},
                             Mode{"gradients divided", 1, 2, 2, "gradients", "bf16"});
  CAPTURE(mode.name);
  Config config = with_mode(small_run(folder), mode);
  const std::string rule = std::string(mode.share) == "state" ? "muon" : "adamw";
  config.optimizer.name = rule;
  if (std::string(mode.share) == "gradients") config.optimizer.moments_dtype = "bf16";
  const std::string disk = folder.file("disk");
  std::filesystem::create_directory(disk);
  const std::vector<std::string> lines = train(config, "", folder.file("plain"));
  const auto files = rank_files(at(folder.file("plain"), kSteps));
  REQUIRE(!files.empty());
  // From here to there and back, after each step.
  std::string from;
  for (int step = 1; step <= kSteps; ++step) {
    CAPTURE(step);
    const double fraction = step % 2 == 0 ? 1 : 0.4;
    Config own = step == 3 ? config : in_file(config, fraction, disk);
    const std::string to = folder.file(fmt::format("leg {}", step));
    CHECK(train(own, from, to) == std::vector<std::string>(lines.begin() + step - 1, lines.end()));
    CHECK(rank_files(at(to, kSteps)) == files);
    CHECK(rank_files(at(to, step)) == rank_files(at(folder.file("plain"), step)));
    from = at(to, step);
  }
  CHECK(std::filesystem::is_empty(disk));
}

TEST_CASE("offload: a run holds what is planned, in memory and in files") {
  const ShardFolder folder;
  const char* const share = GENERATE("none", "state");
  const double fraction = GENERATE(1.0, 0.4);
  CAPTURE(share, fraction);
  const Config config = in_file(with_mode(small_run(folder), {"", 1, 2, 1, share, "bf16"}), fraction, folder.file(""));
  run_as_threads(2, [&](Communicator& world) {
    TrainerOnRank rank(config, world);
    rank.trainer.train_step();
    MemoryUse planned = rank.trainer.replica().plan();
    for (const StagingPlan& plan : rank.trainer.replica().plan().staging)
      planned.communication -= plan.reductions.bytes();
    const MemoryUse used = rank.trainer.used();
    CHECK_ON_RANK(used.file > 0);
    CHECK_ON_RANK(used == planned);
  });
}

TEST_CASE("offload: a folder that is missing is refused on all ranks", "[fault-45]") {
  const ShardFolder folder;
  const Config config = in_file(with_mode(small_run(folder), {"", 1, 2}), 1, folder.file("missing"));
  require_error(ErrorKind::filesystem,
                {"cannot make a file for the optimizer's state in", "missing", "optimizer.offload_folder"},
                [&] { run_as_threads(2, [&](Communicator& world) { const TrainerOnRank rank(config, world); }); });
}

TEST_CASE("offload: memory that a CPU does not have apart is refused") {
  const ShardFolder folder;
  Config config = small_run(folder);
  config.optimizer.offload = "host";
  require_error(ErrorKind::configuration, {"optimizer.offload = \"host\"", "take optimizer.offload = \"file\""},
                [&] { run_as_threads(1, [&](Communicator& world) { const TrainerOnRank rank(config, world); }); });
}
