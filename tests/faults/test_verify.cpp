// megatron_train --verify as users start it.
#include "faults/runs.h"
#include "support/catch.h"

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

TEST_CASE("--verify also proves a chosen precision, within its tolerance") {
  const TemporaryFolder folder;
  const Finished finished = verify(kCube, folder.file("run"),
                                   {"precision.compute=bf16", "parallel.sequence_parallel=true",
                                    "recompute.mode=selective", "optimizer.share=state"});
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(mentions(finished.out, "verified: fp32: loss within"));
  CHECK(mentions(finished.out, "bf16 on one rank against one rank in fp32:"));
  CHECK(mentions(finished.out, "precision: bf16: loss within"));
  CHECK(mentions(finished.out, "bf16 on 8 ranks (tensor 2 x data 2 x pipeline 2) against one rank in bf16:"));
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

TEST_CASE("--verify: says if there is nothing to compare and refuses misfits") {
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

TEST_CASE("--verify: a network that damages gradients fails with 5 and a name") {
  const TemporaryFolder folder;
  const Layout layout{.data = 2};
  const Command command = training(layout, folder.file("run"));
  const Command damaged = {"env", std::string("LD_PRELOAD=") + MEGATRON_DAMAGING_NETWORK, "MEGATRON_DAMAGING_RANK=1"};
  Command preloaded(command.begin(), command.begin() + 2);  // the launch script and its ranks
  preloaded.insert(preloaded.end(), damaged.begin(), damaged.end());
  preloaded.insert(preloaded.end(), command.begin() + 2, command.end());
  preloaded.push_back("--verify");
  const Finished finished = run_command(preloaded, 60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 5);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "gradient_reducer.cpp:"));
  CHECK(mentions(finished.err, "gradients of a copy's samples"));
  CHECK(mentions(finished.err, "the result is not the sum of the ranks' shares"));
  CHECK(mentions(finished.out, "reference step 3 of 3"));
  CHECK_FALSE(mentions(finished.out, "verified:"));
  CHECK_FALSE(std::filesystem::exists(folder.file("run")));
}

TEST_CASE("--verify: a precision that cannot train fails with 5 and its name") {
  const TemporaryFolder folder;
  // A constant scale at which every gradient is beyond fp16.
  const Finished finished =
      verify({.tensor = 2}, folder.file("run"), {"precision.compute=fp16", "precision.loss_scale=1e9"});
  INFO(finished.out << finished.err);
  CHECK(finished.code == 5);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.out, "verified: fp32: loss within"));
  CHECK(mentions(finished.err, "--verify: one rank in fp16 does not train what it trains in fp32"));
  CHECK(mentions(finished.err, "not the layout but the precision"));
  CHECK_FALSE(mentions(finished.out, "verified: fp16"));
}
