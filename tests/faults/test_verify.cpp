// megatron_train --verify as users start it.
#include <catch2/catch.hpp>

#include "faults/runs.h"

namespace {

Finished verify(const Layout& layout, const std::string& directory, Settings settings = {}) {
  Command command = training(layout, directory, settings);
  command.push_back("--verify");
  return run_command(command, 60);
}

}  // namespace

TEST_CASE("--verify compares a layout with one rank, and touches nothing") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Layout layout = GENERATE(Layout{2, 1, 1}, Layout{1, 2, 2});
  CAPTURE(layout.name());
  const Finished finished = verify(layout, directory);
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(mentions(finished.out, "reference step 3 of 3"));
  CHECK(mentions(finished.out, "verified: fp32: loss within"));
  CHECK(folder.files().empty());
  CHECK(!std::filesystem::exists(directory));
}

TEST_CASE("--verify proves a precision of one's own once more, as a band") {
  const TemporaryFolder folder;
  const Finished finished = verify(kCube, folder.file("run"),
                                   {"precision.compute=bf16", "parallel.sequence_parallel=true",
                                    "recompute.mode=selective", "optimizer.distributed=true"});
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(mentions(finished.out, "verified: fp32: loss within"));
  CHECK(mentions(finished.out, "verified: bf16: loss within"));
}

TEST_CASE("--verify leaves a finished run as it is") {
  const TemporaryFolder folder;
  copy_run(straight_run(kOneRank), folder.file("run"), kPlannedSteps);
  const auto before = all_files(folder.file("run"));
  const Finished finished = verify({2, 1, 1}, folder.file("run"));
  CHECK(finished.code == 0);
  CHECK(all_files(folder.file("run")) == before);
}

TEST_CASE("--verify says when there is nothing to compare, and refuses what does not fit") {
  const TemporaryFolder folder;
  Finished finished = verify(kOneRank, folder.file("run"), {"train.micro_batch_size=1"});
  CHECK(finished.code == 0);
  CHECK(mentions(finished.out, "nothing to compare"));
  finished = verify({2, 1, 1}, folder.file("run"), {"model.hidden_size=65536", "model.layers=96"});
  CHECK(finished.code == 2);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "whole model on one rank"));
  finished = run_command({train_program(), input_file(), "--verify", "--dry-run"}, 30);
  CHECK(finished.code == 2);
  CHECK(mentions(finished.err, "--verify runs the layout"));
}
