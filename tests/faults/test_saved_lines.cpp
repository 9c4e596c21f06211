// "saved PATH" in the log means that the checkpoint is there: the line comes after its folder has got its name.
#include <sstream>

#include "faults/runs.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

TEST_CASE("saves: the log says saved after the rename and never before", "[fault-123]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), seen = folder.file("seen");
  const std::string async = GENERATE("false", "true");
  Command command = {"env", std::string("LD_PRELOAD=") + MEGATRON_WATCHED_RENAME,
                     "MEGATRON_WATCHED_LOG=" + run + "/run.log", "MEGATRON_WATCHED_OUT=" + seen};
  const Command train =
      training(kOneRank, run, {"checkpoint.every_steps=2", "checkpoint.keep_last=0", "checkpoint.async=" + async});
  command.insert(command.end(), train.begin(), train.end());
  const Finished finished = run_command(command, 60);
  INFO(finished.out << finished.err);
  REQUIRE(finished.code == 0);

  const std::vector<std::int64_t> saved = saved_steps(run);
  CHECK(saved.size() == 4);
  std::istringstream lines(contents_of(seen));
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) found.push_back(line);
  REQUIRE(found.size() == saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    CHECK(found[i] == checkpoint(run, saved[i]) + " unsaid");
    CHECK(mentions(contents_of(run + "/run.log"), "saved " + checkpoint(run, saved[i]) + " ("));
  }
}
