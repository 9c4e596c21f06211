// Whole runs that end well: what they leave behind, and that stopping, resuming and changing the layout do not show in
// the numbers.
#include <cmath>
#include <nlohmann/json.hpp>

#include "faults/runs.h"
#include "support/catch.h"

namespace {

// Without the evaluation at the end of a first, shorter part: only a run that ends there has it.
std::vector<std::string> without_evaluation_of(std::vector<std::string> lines, int step) {
  const std::string mark = "\"step\":" + std::to_string(step) + ",";
  std::erase_if(lines, [&](const std::string& line) { return mentions(line, "\"eval\"") && mentions(line, mark); });
  return lines;
}

}  // namespace

TEST_CASE("runs: eight ranks leave the documented files and a rerun is complete") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Settings settings = {"checkpoint.every_steps=3"};
  train(kCube, directory, settings);

  const std::vector<std::string> train_fields = {"kind",
                                                 "step",
                                                 "loss",
                                                 "losses",
                                                 "grad_norm",
                                                 "learning_rate",
                                                 "samples",
                                                 "tokens",
                                                 "epoch",
                                                 "global_batch_size",
                                                 "step_seconds",
                                                 "tokens_per_second",
                                                 "model_tflops_per_rank",
                                                 "hardware_tflops_per_rank",
                                                 "loss_scale",
                                                 "skipped",
                                                 "time"};
  const std::vector<std::string> evaluation_fields = {"kind",       "split",   "step",   "loss",
                                                      "perplexity", "samples", "tokens", "time"};
  std::ifstream metrics(directory + "/metrics.jsonl");
  int steps = 0, evaluations = 0;
  for (std::string text; std::getline(metrics, text);) {
    const auto line = nlohmann::ordered_json::parse(text);
    std::vector<std::string> fields;
    for (const auto& field : line.items()) fields.push_back(field.key());
    if (line.at("kind") == "train") {
      ++steps;
      CHECK(fields == train_fields);
      CHECK(line.at("step") == steps);
      CHECK(line.at("samples") == 8 * steps);
      CHECK(line.at("tokens") == 8 * 16 * steps);
      CHECK(line.at("losses").at("language_model") == line.at("loss"));
    } else {
      ++evaluations;
      CHECK(fields == evaluation_fields);
      CHECK(line.at("samples") == 8 * line.at("step").get<int>());
      CHECK(line.at("tokens") == 8 * 16 * line.at("step").get<int>());
    }
  }
  CHECK(steps == kPlannedSteps);
  CHECK(evaluations >= 2);  // validation after steps 4 and 8
  CHECK(losses(directory).front() == Approx(std::log(257)).margin(0.3));
  CHECK(losses(directory).back() < losses(directory).front());

  CHECK(mentions(contents_of(directory + "/config.toml"), "hidden_dropout = 0.1"));
  CHECK(mentions(contents_of(directory + "/run.log"), "8 ranks = tensor 2"));
  CHECK(mentions(contents_of(directory + "/loss.svg"), "<svg"));
  CHECK(saved_steps(directory) == std::vector<std::int64_t>{6, 8});
  CHECK(rank_files(directory, 8).size() == 8);

  const auto before = all_files(directory);
  const Finished again = train(kCube, directory, settings);
  CHECK(mentions(again.out, "already complete"));
  CHECK(all_files(directory) == before);
}

TEST_CASE("a resumed run is bit-identical to one without a break", "[fault-17]") {
  for (const Layout& layout : {kOneRank, kCube}) {
    CAPTURE(layout.name());
    const TemporaryFolder folder;
    const std::string directory = folder.file("run");
    const Settings settings = {"checkpoint.every_steps=2"};
    Settings short_settings = settings;
    short_settings.push_back("train.steps=3");
    train(layout, directory, short_settings);
    CHECK(numbers(directory, "train").size() == 3);
    const Finished resumed = train(layout, directory, settings);
    CHECK(mentions(resumed.out, "resuming from " + checkpoint(directory, 3) + " at step 3"));
    const std::string& straight = straight_run(layout);
    CHECK(without_evaluation_of(numbers(directory), 3) == numbers(straight));
    CHECK(same_rank_files(directory, straight, kPlannedSteps));
  }
}

TEST_CASE("a run resumes on another layout with the same losses") {
  const std::string& straight = straight_run(kCube);
  const std::vector<double> expected = losses(straight);
  for (const Layout& layout : {Layout{1, 1, 4}, Layout{4, 1, 1}, Layout{1, 4, 1}}) {
    CAPTURE(layout.name());
    const TemporaryFolder folder;
    const std::string directory = folder.file("run");
    copy_run(straight, directory, 3);
    train(layout, directory);
    const std::vector<double> found = losses(directory);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      CHECK(found[i] == Approx(expected[i]).epsilon(i < 3 ? 0 : 1e-5).margin(0));
    }
    CHECK(found != expected);  // another layout sums in another order: equal bits would mean that nothing was trained
  }
}

TEST_CASE("Megatron's order: same on two layouts and kept by resuming") {
  const TemporaryFolder folder;
  const Settings order = {"data.order=megatron", "data.order_samples=64", "checkpoint.every_steps=2"};
  const auto with = [&](const Settings& more) {
    Settings all = order;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string straight = folder.file("straight"), broken = folder.file("broken"), cube = folder.file("cube");
  train(kOneRank, straight, order);
  train(kOneRank, broken, with({"train.steps=3"}));
  std::filesystem::create_hard_link(broken + "/config.toml", folder.file("before.toml"));
  const Finished resumed = train(kOneRank, broken, order);
  CHECK(mentions(resumed.out, "resuming from " + checkpoint(broken, 3)));
  CHECK(mentions(contents_of(broken + "/config.toml"), "\nsteps = 8\n"));
  CHECK(mentions(contents_of(folder.file("before.toml")), "\nsteps = 3\n"));  // replaced as a whole
  CHECK(without_evaluation_of(numbers(broken), 3) == numbers(straight));
  CHECK(same_rank_files(broken, straight, kPlannedSteps));
  train(kCube, cube, order);
  const std::vector<double> expected = losses(straight), found = losses(cube);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-5).margin(0));
  CHECK(losses(straight) != losses(straight_run(kOneRank)));  // it is another order than the usual one

  // Another count, seed or split is another order: refused, or said where a new run is begun.
  for (const char* change : {"data.order_samples=72", "train.seed=5", "data.split=\"90,10\"", "data.order=epoch"}) {
    CAPTURE(change);
    Settings changed = with({"train.steps=9"});
    if (std::string(change) == "data.order=epoch") std::erase(changed, "data.order_samples=64");
    changed.push_back(change);
    const auto before = all_files(broken);
    const Finished refused = run_command(training(kOneRank, broken, changed));
    CHECK(refused.code == 4);
    CHECK(mentions(refused.err, "order"));
    CHECK(mentions(refused.err, "in the checkpoint"));
    CHECK(all_files(broken) == before);
  }
  const Finished loaded =
      train(kOneRank, folder.file("new"), {"data.order=megatron", "train.steps=10", "checkpoint.load=" + broken});
  CHECK(mentions(loaded.out + loaded.err, "order_samples: 64 in the checkpoint, 80 in this run"));
  Command print = {train_program(), input_file(), "--print-samples", "0:3"};
  const std::string usual = run_command(print).out;
  for (const char* setting : {"data.order=megatron", "data.order_samples=64"})
    print.insert(print.end(), {"--set", setting});
  const std::string printed = run_command(print).out;
  CHECK(std::count(printed.begin(), printed.end(), '\n') == 3);
  CHECK(printed != usual);
  print[3] = "99999:1";
  CHECK(run_command(print).code == 2);  // there is no such sample
  const Finished too_long = run_command(training(kOneRank, folder.file("long"), with({"train.steps=100000"})));
  CHECK(too_long.code == 2);
  CHECK(mentions(too_long.err, "800000 samples, but data.order_samples = 64"));
}

TEST_CASE("a batch that grows, over some passes of the data, broken in the middle") {
  const TemporaryFolder folder;
  Settings settings = {"train.batch_ramp_up={start=2, increment=2, samples=60}",
                       "train.micro_batch_size=1",
                       "train.evaluate_every=epoch",
                       "train.epochs=2.5",
                       "data.split=\"0.4,50,49.6\"",
                       "learning_rate.warmup_samples=20",
                       "learning_rate.decay_samples=100",
                       "checkpoint.every_steps=6",
                       "checkpoint.keep_last=0"};
  const std::string straight = folder.file("straight"), broken = folder.file("broken");
  const Finished run = train(kCube, straight, settings);
  CHECK(mentions(run.out, "ramp-up   from 2 samples by 2 to 8, in 19 steps of 64 samples together"));
  // Batches of 2 up to sample 20, of 4 up to 40, of 6 up to 60, then 8.
  std::int64_t samples = 0, passes = 0, steps = 0;
  std::vector<std::int64_t> expected_evaluations, evaluations;
  double pass = 0;
  std::ifstream metrics(straight + "/metrics.jsonl");
  for (std::string text; std::getline(metrics, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line.at("kind") == "eval") {
      if (line.at("split") == "validation") evaluations.push_back(line.at("step").get<std::int64_t>());
      continue;
    }
    const std::int64_t batch = samples < 20 ? 2 : samples < 40 ? 4 : samples < 60 ? 6 : 8;
    CHECK(line.at("global_batch_size") == batch);
    samples += batch;
    CHECK(line.at("step") == ++steps);
    CHECK(line.at("samples") == samples);
    CHECK(line.at("tokens") == 16 * samples);
    CHECK(line.at("learning_rate").get<double>() ==
          Approx(samples <= 20   ? 1e-3 * static_cast<double>(samples) / 20
                 : samples > 100 ? 1e-4
                                 : 1e-4 + 9e-4 * (1 + std::cos(M_PI * static_cast<double>(samples - 20) / 80)) / 2));
    pass = static_cast<double>(samples) / line.at("epoch").get<double>();  // samples of a pass
    if (std::floor(line.at("epoch").get<double>()) > static_cast<double>(passes)) expected_evaluations.push_back(steps);
    passes = static_cast<std::int64_t>(line.at("epoch").get<double>());
  }
  CHECK(passes == 2);
  CHECK(static_cast<double>(samples) <= 2.5 * pass);
  CHECK(static_cast<double>(samples) + 8 > 2.5 * pass);
  expected_evaluations.push_back(steps);
  CHECK(evaluations == expected_evaluations);
  CHECK(expected_evaluations.size() == 3);

  copy_run(straight, broken, 12);
  const Finished resumed = train(kCube, broken, settings);
  CHECK(mentions(resumed.out, "at step 12"));
  CHECK(numbers(broken) == numbers(straight));
  CHECK(same_rank_files(broken, straight, steps));
}

TEST_CASE("growing sequences: tokens are counted and losses are their mean") {
  const TemporaryFolder folder;
  // 4 4 8 8 8 12 12 16 16 ... tokens, batches of 8.
  const Settings settings = {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=8, multiple=4}",
                             "train.tokens=1000",
                             "parallel.sequence_parallel=true",
                             "learning_rate.warmup_tokens=128",
                             "learning_rate.decay_tokens=512",
                             "checkpoint.every_steps=3",
                             "checkpoint.keep_last=0"};
  const std::string straight = folder.file("straight"), broken = folder.file("broken");
  const Finished run = train(kCube, straight, settings);
  CHECK(mentions(run.out, "sequence  fixed_linear: 4 tokens in the first step, 16 from step 8 on"));
  CHECK(mentions(run.out, "length    11 steps = 88 samples = 960 tokens"));
  const std::vector<std::int64_t> lengths = {4, 4, 8, 8, 8, 12, 12, 16, 16, 16, 16};
  std::int64_t tokens = 0;
  std::size_t steps = 0;
  double flops_of_four = 0;
  std::ifstream metrics(straight + "/metrics.jsonl");
  for (std::string text; std::getline(metrics, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line.at("kind") == "eval") continue;
    REQUIRE(steps < lengths.size());
    const std::int64_t length = lengths[steps++];
    tokens += 8 * length;
    CHECK(line.at("tokens") == tokens);
    CHECK(line.at("samples") == 8 * steps);
    CHECK(line.at("loss").get<double>() == Approx(std::log(257)).margin(0.6));
    CHECK(line.at("learning_rate").get<double>() ==
          Approx(tokens <= 128  ? 1e-3 * static_cast<double>(tokens) / 128
                 : tokens > 512 ? 1e-4
                                : 1e-4 + 9e-4 * (1 + std::cos(M_PI * static_cast<double>(tokens - 128) / 384)) / 2));
    const double seconds = line.at("step_seconds").get<double>();
    CHECK(line.at("tokens_per_second").get<double>() == Approx(8 * static_cast<double>(length) / seconds));
    // 6 N + 6 L h s a token: what a longer sequence adds.
    const double flops =
        8e12 * line.at("model_tflops_per_rank").get<double>() * seconds / 8 / static_cast<double>(length);
    if (length == 4) flops_of_four = flops;
    CHECK(flops - flops_of_four == Approx(6.0 * 4 * 32 * static_cast<double>(length - 4)).margin(1));
  }
  CHECK(steps == lengths.size());
  copy_run(straight, broken, 6);
  const Finished resumed = train(kCube, broken, settings);
  CHECK(mentions(resumed.out, "at step 6"));
  CHECK(numbers(broken) == numbers(straight));
  CHECK(same_rank_files(broken, straight, 11));
}

TEST_CASE("checkpoint.load continues another run, optimizer included") {
  const std::string& straight = straight_run(kCube);
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  train(kCube, directory, {"checkpoint.load=" + checkpoint(straight, 5), "checkpoint.every_steps=100"});
  auto expected = numbers(straight, "train");
  expected.erase(expected.begin(), expected.begin() + 5);
  CHECK(numbers(directory, "train") == expected);
  CHECK(same_rank_files(directory, straight, kPlannedSteps));
}

TEST_CASE("checkpoint.initialize_from: weights only and not after a first save") {
  const std::string& straight = straight_run(kOneRank);
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Finished started = train(
      kOneRank, directory, {"checkpoint.initialize_from=" + straight, "checkpoint.every_steps=100", "train.steps=2"});
  CHECK(mentions(started.out, "weights from " + checkpoint(straight, kPlannedSteps)));
  const auto fresh = numbers(straight, "train"), lines = numbers(directory, "train");
  REQUIRE(lines.size() == 2);
  const auto first_line = nlohmann::json::parse(lines[0]), fresh_line = nlohmann::json::parse(fresh[0]);
  for (const char* same : {"step", "samples", "tokens", "learning_rate"}) CHECK(first_line[same] == fresh_line[same]);
  CHECK(losses(directory)[0] < losses(straight)[0] - 0.05);  // the weights have learned something

  // Its own checkpoint comes first: the named one need not even exist any more.
  const Settings again = {"checkpoint.initialize_from=" + folder.file("gone"), "checkpoint.every_steps=100",
                          "train.steps=3"};
  const Finished resumed = train(kOneRank, directory, again);
  CHECK(mentions(resumed.out, "resuming from " + checkpoint(directory, 2)));
  CHECK(first(numbers(directory, "train"), 2) == lines);
  CHECK(numbers(directory, "train").size() == 3);
}
