// Errors in the input, the data, a checkpoint or the disk are reported once and end the job with their exit code.
#include <sstream>

#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

struct Mistake {
  const char* name;
  Command command;
  int code;
  std::vector<std::string> words;  ///< all of them in the message
};

// Starts them side by side: most of their time is Open MPI's clearing up.
void require_refused(const std::vector<Mistake>& mistakes) {
  std::vector<Command> commands;
  for (const Mistake& mistake : mistakes) commands.push_back(mistake.command);
  const std::vector<Finished> all = run_commands(commands, 3, 30);
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    CAPTURE(mistakes[i].name);
    INFO(all[i].out << all[i].err);
    CHECK_FALSE(all[i].timed_out);
    CHECK(all[i].code == mistakes[i].code);
    CHECK(error_lines(all[i]) == 1);
    for (const std::string& word : mistakes[i].words) {
      CAPTURE(word);
      CHECK(mentions(all[i].err, word));
    }
  }
}

void truncate_file(const std::string& path) {
  fs::resize_file(path, fs::file_size(path) / 2);
}

void flip_bit(const std::string& path) {
  std::string bytes = contents_of(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_file(path, bytes);
}

}  // namespace

TEST_CASE("errors: a damaged checkpoint is passed over with a warning", "[fault-19]") {
  struct Damage {
    const char* name;
    void (*apply)(const std::string& folder);
    const char* words;
  };
  const Damage all[] = {
      {"truncated", [](const std::string& folder) { truncate_file(folder + "/rank_00003.h5"); }, "instead of"},
      {"flipped bit", [](const std::string& folder) { flip_bit(folder + "/rank_00005.h5"); }, "not what was saved"},
      {"missing", [](const std::string& folder) { fs::remove(folder + "/rank_00000.h5"); }, "is missing"},
      {"swapped",
       [](const std::string& folder) {
         fs::rename(folder + "/rank_00000.h5", folder + "/aside");
         fs::rename(folder + "/rank_00001.h5", folder + "/rank_00000.h5");
         fs::rename(folder + "/aside", folder + "/rank_00001.h5");
       },
       "rank_0000"},
  };
  const std::string& straight = straight_run(kCube);
  const TemporaryFolder folder;
  std::vector<Command> commands;
  for (const Damage& damage : all) {
    copy_run(straight, folder.file(damage.name), 5);
    damage.apply(checkpoint(folder.file(damage.name), 5));
    commands.push_back(training(kCube, folder.file(damage.name), {"checkpoint.every_steps=100"}));
  }
  const std::vector<Finished> finished = run_commands(commands, 2);
  for (std::size_t i = 0; i < finished.size(); ++i) {
    CAPTURE(all[i].name);
    INFO(finished[i].out << finished[i].err);
    REQUIRE(finished[i].code == 0);
    const std::string said = finished[i].out + finished[i].err, directory = folder.file(all[i].name);
    CHECK(mentions(said, "checkpoint " + checkpoint(directory, 5) + " is damaged and passed over"));
    CHECK(mentions(said, all[i].words));
    CHECK(mentions(said, "resuming from " + checkpoint(directory, 4)));
    CHECK(numbers(directory) == numbers(straight));
    CHECK(same_rank_files(directory, straight, kPlannedSteps));
  }
}

TEST_CASE("mistakes in the command line and the input end with 2", "[fault-1][fault-4]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const auto with = [&](const Settings& settings) { return training(kTwoTensorRanks, directory, settings); };
  Command unknown_option = with({});
  unknown_option.push_back("--dry-rum");
  const std::string used = folder.file("used");
  fs::copy(straight_run(kOneRank), used, fs::copy_options::recursive);
  const auto before = all_files(used);
  require_refused({
      {"unknown key", with({"train.stps=3"}), 2, {"unknown key 'train.stps'", "did you mean 'steps'"}},
      {"division", with({"model.hidden_size=30"}), 2, {"hidden_size = 30"}},
      {"family", with({"model.family=t6"}), 2, {"model.family", "t6", "gpt", "bert", "t5"}},
      {"ranks", with({"parallel.tensor=4"}), 2, {"tensor", "2"}},
      {"unknown option", unknown_option, 2, {"--dry-rum", "--dry-run"}},
      {"used directory",
       training(kTwoTensorRanks, used, {"checkpoint.resume=false"}),
       2,
       {used, "holds a run already"}},
  });
  CHECK(all_files(used) == before);
  CHECK_FALSE(fs::exists(directory));  // nothing is made before all is known to be well
}

TEST_CASE("missing and damaged data end with 3", "[fault-9][fault-10]") {
  const TemporaryFolder folder;
  const std::string cut = folder.file("cut");
  fs::copy(data_prefix() + "-00000.h5", cut + "-00000.h5");
  truncate_file(cut + "-00000.h5");
  const std::string empty = folder.file("empty");
  write_file(empty + "-00000.h5", "");
  const auto with = [&](const std::string& data) {
    return training(kTwoTensorRanks, folder.file("run"), {"data.train=" + data});
  };
  require_refused({
      {"missing", with(folder.file("nothing")), 3, {folder.file("nothing")}},
      {"truncated", with(cut), 3, {cut + "-00000.h5"}},
      {"empty", with(empty), 3, {empty + "-00000.h5"}},
  });
  // Without a run: a flipped bit of the tokens too.
  const Finished whole = run_command({preprocess_program(), "verify", data_prefix()});
  INFO(whole.out << whole.err);
  CHECK(whole.code == 0);
  CHECK(mentions(whole.out, data_prefix() + ": in order: "));
  const std::string flipped = folder.file("flipped");
  fs::copy(data_prefix() + "-00000.h5", flipped + "-00000.h5");
  flip_bit(flipped + "-00000.h5");
  for (const std::string& set : {flipped, cut}) {
    const Finished found = run_command({preprocess_program(), "verify", set});
    INFO(found.out << found.err);
    CHECK(found.code == 3);
    CHECK(mentions(found.err, set + "-00000.h5"));
  }
}

TEST_CASE("errors: unusable checkpoints end with 4 and the run stays as it was", "[fault-8][fault-19]") {
  const std::string& straight = straight_run(kCube);
  const TemporaryFolder folder;
  const std::string changed = folder.file("changed"), damaged = folder.file("damaged"), lost = folder.file("lost");
  for (const std::string& copy : {changed, damaged, lost}) copy_run(straight, copy, 5);
  flip_bit(checkpoint(damaged, 5) + "/rank_00002.h5");
  for (const std::int64_t step : saved_steps(lost)) truncate_file(checkpoint(lost, step) + "/rank_00000.h5");
  const auto before = all_files(changed);
  require_refused({
      {"changed model",
       training(kTwoTensorRanks, changed, {"model.hidden_size=64", "model.layers=2"}),
       4,
       {"hidden_size", "32", "64", "layers"}},
      {"damaged, named",
       training(kTwoTensorRanks, folder.file("run"), {"checkpoint.load=" + checkpoint(damaged, 5)}),
       4,
       {checkpoint(damaged, 5), "rank_00002.h5"}},
      {"all damaged", training(kTwoTensorRanks, lost), 4, {"all checkpoints are damaged"}},
      {"nothing there",
       training(kTwoTensorRanks, folder.file("run2"), {"checkpoint.initialize_from=" + folder.file("no")}),
       4,
       {folder.file("no"), "checkpoint.initialize_from: "}},
      {"no folder to load",
       training(kTwoTensorRanks, folder.file("run3"), {"checkpoint.load=" + lost + "/config.toml"}),
       4,
       {"error: rank 0 on ", ": checkpoint.load: " + lost + "/config.toml is no folder"}},
      {"a file as run.directory",
       training(kTwoTensorRanks, lost + "/config.toml"),
       7,
       {"run.directory = \"" + lost + "/config.toml\"", "is an existing file and no folder; choose another folder"}},
  });
  CHECK(all_files(changed) == before);
  for (const char* run : {"run2", "run3"}) CHECK_FALSE(fs::exists(folder.file(run)));
}

TEST_CASE("errors: every line of several has a prefix, and a rank is named once", "[fault-3]") {
  const TemporaryFolder folder;
  const Finished finished = run_command(
      training({.tensor = 1, .pipeline = 1, .data = 3}, folder.file("run"), {"data.train=" + folder.file("nothing")}));
  INFO(finished.err);
  CHECK(finished.code == 2);
  CHECK(mentions(finished.err, folder.file("nothing")));
  CHECK(mentions(finished.err, "\nerror: train.global_batch_size = "));
  std::istringstream lines(finished.err);
  for (std::string line; std::getline(lines, line);) {
    if (mentions(line, "btl_tcp")) continue;  // a warning of Open MPI 5's, on a machine without a network
    CHECK((line.starts_with("launch: ") || mentions(line, "error: ")));
    CHECK_FALSE((mentions(line, "rank 0 of ") && mentions(line, "rank 0 on ")));
  }
}

TEST_CASE("errors: a plan says what a start would refuse", "[fault-19]") {
  const TemporaryFolder folder;
  const std::string lost = folder.file("lost");
  copy_run(straight_run(kOneRank), lost, 5);
  const auto plan = [&](const std::string& directory, const std::string& setting, const Settings& more = {}) {
    Command command = {train_program(), input_file(), "--dry-run"};
    Settings settings = {"run.directory=" + directory, setting};
    settings.insert(settings.end(), more.begin(), more.end());
    for (const std::string& each : settings) command.insert(command.end(), {"--set", each});
    const Finished finished = run_command(command);
    INFO(finished.out << finished.err);
    CHECK(finished.code == 0);
    return finished.out;
  };
  const std::string good = plan(folder.file("run"), "checkpoint.load=" + lost);
  CHECK(mentions(good, "this run can be trained as it is\n"));
  CHECK(mentions(good, "its manifest fits this model"));
  CHECK(mentions(good, "megatron_checkpoint verify"));
  // Another model or other batches, in the start's words.
  const std::string wide = "hidden_size: 32 in the checkpoint, 64 in this run";
  for (const std::string key : {"checkpoint.load", "checkpoint.initialize_from"}) {
    const std::string from = key + "=" + lost, path = checkpoint(lost, saved_steps(lost).back());
    const std::string planned = plan(folder.file("run"), from, {"model.hidden_size=64", "model.layers=2"});
    CHECK(mentions(planned, "this run cannot be trained on this machine: checkpoint " + path +
                                " is of another model; use the input file it was trained with, or another " + key +
                                ": "));
    CHECK(mentions(planned, wide + "; layers: 4 in the checkpoint, 2 in this run"));
    CHECK(
        mentions(plan(folder.file("run"), from, {"model.hidden_size=64", "data.train=" + folder.file("none")}), wide));
    const Finished started = run_command(training(kOneRank, folder.file("started"), {from, "model.hidden_size=64"}));
    CHECK(started.code == 4);
    CHECK(mentions(started.err, "is of another model"));
    CHECK(mentions(started.err, wide));
    CHECK(mentions(plan(folder.file("run"), from, {"data.train=" + folder.file("none")}),
                   "its manifest fits this model"));
  }
  CHECK(mentions(plan(folder.file("run"), "checkpoint.load=" + lost, {"train.global_batch_size=16"}),
                 "cannot be trained on this machine: " + checkpoint(lost, saved_steps(lost).back()) +
                     " was trained in other batches than this run's"));
  CHECK(mentions(plan(folder.file("run"), "checkpoint.initialize_from=" + lost, {"train.global_batch_size=16"}),
                 "this run can be trained as it is\n"));
  CHECK(mentions(plan(lost, "model.hidden_size=64"), "or another run.directory: "));
  for (const std::string key : {"checkpoint.load", "checkpoint.initialize_from"}) {
    CHECK(mentions(plan(folder.file("run"), key + "=" + folder.file("no")),
                   "this run cannot be trained on this machine: " + key + ": " + folder.file("no") + " is no folder"));
  }
  for (const std::int64_t step : saved_steps(lost)) truncate_file(checkpoint(lost, step) + "/rank_00000.h5");
  CHECK(mentions(plan(folder.file("run"), "checkpoint.load=" + lost), "there is no complete checkpoint in " + lost));
  CHECK(mentions(plan(lost, "train.seed=1"), "there is no complete checkpoint in " + lost));
  CHECK(mentions(plan(lost + "/config.toml", "train.seed=1"), "is an existing file and no folder"));
  CHECK_FALSE(fs::exists(folder.file("run")));
}

TEST_CASE("another learning rate on resume is accepted, used and logged", "[fault-8]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  copy_run(straight_run(kOneRank), directory, 3);
  const Finished resumed = train(kOneRank, directory, {"learning_rate.peak=0.004"});
  CHECK(mentions(resumed.out, "changed since the checkpoint: learning_rate.peak = 0.004"));
  const auto lines = numbers(directory, "train"), old = numbers(straight_run(kOneRank), "train");
  REQUIRE(lines.size() == old.size());
  CHECK(lines[2] == old[2]);
  CHECK_FALSE(mentions(old[3], "\"learning_rate\":0.003"));
  CHECK(mentions(lines[3], "\"learning_rate\":0.003"));  // cosine from 0.004 to 0.0001, two steps of six done
}

TEST_CASE("errors: gradients that stay non-finite end the run with 5", "[fault-34]") {
  const std::string& straight = straight_run(kCube);
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  copy_run(straight, directory, 3);
  const Finished finished =
      run_command(training(kCube, directory,
                           {"learning_rate.peak=1e30", "learning_rate.decay=constant", "train.steps=200",
                            "checkpoint.every_steps=150", "train.evaluate_every=0"}));
  INFO(finished.out << finished.err);
  CHECK(finished.code == 5);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "not been finite for 20 steps in a row"));
  for (const char* word : {"on rank ", "the step repeated gave the same", "lower learning_rate.peak"}) {
    CAPTURE(word);
    CHECK(mentions(finished.err, word));
  }
  CHECK(mentions(finished.out + finished.err, "is skipped: "));
  CHECK(saved_steps(directory) == std::vector<std::int64_t>{1, 2, 3});
  CHECK(same_rank_files(directory, straight, 3));
}

TEST_CASE("errors: a run that diverges keeps good checkpoints and ends with 5", "[fault-77]") {
  const std::string& straight = straight_run(kOneRank);
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  copy_run(straight, directory, 3);
  const Command command = training(kOneRank, directory,
                                   {"learning_rate.peak=1e30", "learning_rate.decay=constant", "train.steps=16",
                                    "checkpoint.every_steps=1", "checkpoint.keep_last=2", "train.evaluate_every=0"});
  for (const bool again : {false, true}) {
    CAPTURE(again);
    const Finished finished = run_command(command);
    INFO(finished.out << finished.err);
    CHECK(finished.code == 5);
    CHECK(error_lines(finished) == 1);
    CHECK(mentions(finished.err, "the run has ended at step 16, but its last 12 steps have been skipped"));
    CHECK(mentions(finished.err, "the newest checkpoint from before is " + checkpoint(directory, 3)));
    CHECK(saved_steps(directory) == std::vector<std::int64_t>{3, 4, 16});
    CHECK(same_rank_files(directory, straight, 3));
  }
}

TEST_CASE("errors: an fp16 overflow storm is survived or ends with 5 at a floor", "[fault-35]") {
  const TemporaryFolder folder;
  const std::string survived = folder.file("survived"), floor = folder.file("floor");
  const Settings fp16 = {"precision.compute=fp16", "train.steps=30", "train.max_skipped_steps=2",
                         "checkpoint.every_steps=0", "train.evaluate_every=0"};
  Settings with_floor = fp16;
  with_floor.push_back("precision.minimum_loss_scale=1073741824");
  const std::vector<Finished> all =
      run_commands({training(kCube, survived, fp16), training(kCube, floor, with_floor)}, 2, 60);
  INFO(all[0].out << all[0].err << all[1].out << all[1].err);
  CHECK(all[0].code == 0);
  CHECK(mentions(all[0].out,
                 "step 2 is skipped: the gradient overflows at a loss scale of 4294967296, though not at the "
                 "smallest; lowered to"));
  const std::vector<std::string> lines = numbers(survived, "train");
  REQUIRE(lines.size() == 30);
  CHECK(mentions(lines.front(), "\"loss_scale\":4294967296,\"skipped\":1"));
  CHECK(mentions(lines.back(), "\"skipped\":0"));

  CHECK(all[1].code == 5);
  CHECK(error_lines(all[1]) == 1);
  for (const char* word :
       {"step 2:", "for 2 steps in a row", "repeated at a loss scale of 1073741824", "on rank 0 ("}) {
    CAPTURE(word);
    CHECK(mentions(all[1].err, word));
  }
}
