// Checkpoints of real runs, cut anew for other grids: the same files as the other grid saves, and the same run after.
#include <algorithm>
#include <cmath>

#include "checkpoint/store/difference.h"
#include "checkpoint/store/new_checkpoint.h"
#include "checkpoint/store/tensor_slices.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/open_checkpoint.h"
#include "support/require_error.h"
#include "training/step/saved_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config run_on_the_cube(const ShardFolder& folder) {
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = 4;
  config.checkpoint.every_steps = 2;
  config.checkpoint.keep_last = 0;
  config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 2;
  config.run.directory = folder.file("straight");
  return config;
}

void reshape(const std::string& from, const std::string& to, const GridShape& shape, int virtual_stages = 1) {
  const CheckpointReader source = open_alone(from);
  const Config config = config_for_layout(source, shape, virtual_stages);
  rewrite_checkpoint(source, to, shape.ranks(), [&](int rank) { return saved_layout(config, rank); });
}

std::map<std::string, std::string> files_of(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    files[entry.path().filename().string()] = contents_of(entry.path().string());
  }
  return files;
}

/// Losses and norms of the steps after `step`, every digit.
std::vector<std::string> numbers_after(const LoopResult& result, int step) {
  for (const std::string& told : result.told) REQUIRE(told.empty());
  std::vector<std::string> lines;
  for (const nlohmann::json& line : result.metrics) {
    if (line.at("kind") != "train" || line.at("step").get<int>() <= step) continue;
    lines.push_back(line.at("step").dump() + " " + line.at("loss").dump() + " " + line.at("grad_norm").dump());
  }
  return lines;
}

}  // namespace

TEST_CASE("saved layout: what sets of ranks shared is cut for other ranks", "[train]") {
  const ShardFolder folder;
  Config config = run_on_the_cube(folder);
  config.parallel.tensor = config.parallel.pipeline = 1;
  config.parallel.data = 4;
  config.optimizer.share = "weights";
  config.optimizer.share_within = 2;
  numbers_after(run_loop(config), 1);
  const std::string saved = folder.file("straight/checkpoints/step_00000002");
  reshape(saved, folder.file("one"), {});
  reshape(folder.file("one"), folder.file("four"), {.data = 4});
  CHECK(files_of(folder.file("four")) != files_of(saved));  // no sets there
  reshape(saved, folder.file("four directly"), {.data = 4});
  CHECK(files_of(folder.file("four directly")) == files_of(folder.file("four")));
}

TEST_CASE("saved layout: experts over 1 and 2 and 4 ranks and back keep all bytes", "[train]") {
  const bool distributed = GENERATE(false, true);
  const std::string rule = GENERATE("adamw", "sgd", "muon");
  CAPTURE(distributed, rule);
  const ShardFolder folder;
  Config config = run_on_the_cube(folder);
  with_balanced_experts(config.model);
  config.parallel.expert = 2;
  config.parallel.sequence_parallel = true;
  config.optimizer.share = distributed ? "state" : "none";
  config.optimizer.name = rule;
  config.checkpoint.every_steps = 1;
  const std::vector<std::string> expected = numbers_after(run_loop(config), 1);
  REQUIRE(expected.size() == 3);

  const std::string saved = folder.file("straight/checkpoints/step_00000001");
  reshape(saved, folder.file("one"), {.data = 2});
  reshape(folder.file("one"), folder.file("four"), {.data = 4, .pipeline = 2, .expert = 4});
  reshape(folder.file("four"), folder.file("two"), {.tensor = 2, .data = 2, .expert = 2});
  reshape(folder.file("two"), folder.file("back"), {.tensor = 2, .data = 2, .pipeline = 2, .expert = 2});
  CHECK((files_of(folder.file("back")) == files_of(saved)));
  const auto four = open_alone(folder.file("four"));
  const auto bias = four.tensors().find("layers.3.moe.router.choice_bias");
  REQUIRE(bias != four.tensors().end());
  CHECK(bias->second.shape == Shape{4});
  const std::vector<TensorSlice> all = whole_tensors(four);
  const auto whole = std::find_if(all.begin(), all.end(), [&](const auto& slice) { return slice.name == bias->first; });
  std::vector<float> numbers(4, 9.0f);
  CHECK(whole->states.empty());  // no optimizer trains it
  CHECK(four.states() == (rule == "sgd" ? std::vector<std::string>{"m"} : std::vector<std::string>{"m", "v"}));
  TensorSlice slice = *whole;
  slice.value = Tensor(numbers.data(), {4}, DType::f32);
  four.read_numbers(kValues, {slice});
  for (const float number : numbers) CHECK(std::abs(number) <= 0.0101f);
  // One step of 0.01 either way. A second one may take it back: biases decide more than the scores of so small a model.
  CHECK(numbers != std::vector<float>(4));

  // Continued from another cut, on the first layout.
  config.run.directory = folder.file("resumed");
  config.checkpoint.load = folder.file("four");
  CHECK(numbers_after(run_loop(config), 1) == expected);
}

TEST_CASE("saved layout: 2x2x2 to 1x4 to 4x1 and back is the same bytes", "[train]") {
  const bool distributed = GENERATE(false, true);
  const int virtual_stages = GENERATE(1, 2);
  const bool one_group = GENERATE(false, true);  // every tensor rank has a copy of its keys
  CAPTURE(distributed, virtual_stages, one_group);
  const ShardFolder folder;
  Config config = run_on_the_cube(folder);
  if (one_group) with_one_group(config.model);
  config.optimizer.share = distributed ? "state" : "none";
  config.parallel.virtual_stages = virtual_stages;
  if (virtual_stages > 1) config.parallel.schedule = "interleaved";
  const std::vector<std::string> expected = numbers_after(run_loop(config), 2);
  REQUIRE(expected.size() == 2);

  const std::string saved = folder.file("straight/checkpoints/step_00000002");
  const GridShape cube{.tensor = 2, .data = 2, .pipeline = 2};
  reshape(saved, folder.file("1x4"), {.tensor = 1, .pipeline = 4});
  reshape(folder.file("1x4"), folder.file("4x1"), {.tensor = 4, .pipeline = 1});
  reshape(folder.file("4x1"), folder.file("back"), cube, virtual_stages);
  const auto merged = open_alone(folder.file("4x1"));
  rewrite_checkpoint(merged, folder.file("merged"), 1, [&](int) { return whole_tensors(merged); });
  CHECK(files_of(folder.file("1x4")).size() == 5);
  CHECK(files_of(folder.file("4x1")).size() == 5);
  CHECK(files_of(folder.file("merged")).size() == 2);
  CHECK((files_of(folder.file("back")) == files_of(saved)));

  for (const char* source : {"1x4", "merged"}) {
    CAPTURE(source);
    Config resumed = config;
    resumed.checkpoint.load = folder.file(source);
    resumed.run.directory = folder.file(std::string("from ") + source);
    CHECK(numbers_after(run_loop(resumed), 2) == expected);
    for (const TensorDifference& tensor :
         compare_tensors(open_alone(resumed.run.directory), open_alone(config.run.directory), true)) {
      CAPTURE(tensor.name);
      CHECK(tensor.equal());
    }
  }
}

TEST_CASE("saved layout: one rank resumes from a checkpoint cut for four", "[train]") {
  const ShardFolder folder;
  Config config = run_on_the_cube(folder);
  config.parallel = {};
  config.parallel.data = 1;
  const std::vector<std::string> expected = numbers_after(run_loop(config), 2);
  reshape(folder.file("straight/checkpoints/step_00000002"), folder.file("other/checkpoints/step_00000002"),
          {.tensor = 2, .pipeline = 2});
  config.run.directory = folder.file("other");
  CHECK(numbers_after(run_loop(config), 2) == expected);
}

TEST_CASE("saved layout: grids that cannot cut the model are refused", "[train]") {
  const ShardFolder folder;
  Config config = run_on_the_cube(folder);
  config.parallel = {};
  config.parallel.data = 1;
  numbers_after(run_loop(config), 2);
  const auto refuse = [&](const GridShape& shape, int virtual_stages, const std::string& part) {
    require_error(ErrorKind::configuration, {part, "choose other --tensor, --pipeline or --virtual-stages"}, [&] {
      try {
        reshape(folder.file("straight"), folder.file("never"), shape, virtual_stages);
      } catch (const Error& error) {  // nor is anything advised that only an input file has
        CHECK_THAT(error.what(), !Contains("layers_per_stage") && !Contains("vocab_multiple like"));
        throw;
      }
    });
  };
  refuse({.tensor = 3}, 1, "attention_heads");
  refuse({.tensor = 3}, 1, "which is not divisible by parallel.tensor = 3");
  refuse({.pipeline = 3}, 1, "model.layers = 4 is not divisible by parallel.pipeline = 3; possible: 1, 2, 4; choose");
  refuse({.pipeline = 2}, 3, "parallel.virtual_stages = 2 × 3 = 6; possible products: 1, 2, 4; choose");
  CHECK_FALSE(std::filesystem::exists(folder.file("never")));
}
