// Stopped and resumed with options in combination: real checkpoints and data. A run that resumes unchanged gives the
// same bits; one that resumes with other options, or on another layout, the same losses to rounding.
#include <filesystem>
#include <map>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "parity/covering_set.h"
#include "support/catch.h"
#include "support/small_corpus.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int64_t kSteps = 4, kBreak = 2;

struct Trained {
  std::vector<double> losses, norms;
  double evaluated = 0;                      ///< on samples of the training data, after the last step
  std::map<std::string, std::string> files;  ///< the last checkpoint's, by rank
};

std::string checkpoint_of(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/checkpoints/step_{:08}", directory, step);
}

/// From the checkpoint `from` (empty: from the start) to the last step, with checkpoints at the break and at the end.
Trained train(const Config& config, const std::string& from, const std::string& directory, bool evaluates = false) {
  Trained trained;
  run_as_threads(grid_shape(config).ranks(), [&](Communicator& world) {
    Datasets datasets(config);
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Trainer trainer(config, grid, backend, datasets);
    std::vector<std::string> warnings;
    if (!from.empty()) trainer.resume(open_named_checkpoint(world, from, warnings));
    while (!trainer.finished()) {
      const StepResult result = trainer.train_step();
      if (trainer.step() == kBreak || trainer.finished()) trainer.save(directory, nlohmann::json::object());
      if (world.rank() != 0) continue;
      trained.losses.push_back(result.loss);
      trained.norms.push_back(result.gradient_norm);
    }
    if (!evaluates) return;
    const auto evaluated = trainer.evaluate(datasets.train(), 0, [] { return false; });
    if (world.rank() == 0) trained.evaluated = evaluated.value().total;
  });
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_of(directory, kSteps))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank_")) trained.files[name] = contents_of(entry.path().string());
  }
  return trained;
}

}  // namespace

TEST_CASE("resume: options together leave no trace and load any checkpoint", "[fault-17]") {
  const ShardFolder folder;
  const std::string tokens = make_corpus(folder), sentences = make_sentence_corpus(folder);
  const std::vector<Row>& rows = covering_set().rows;
  const auto config_on_disk = [&](const Row& row) {
    Config config = config_of(row);
    config.data.train = config.model.family == "gpt" ? tokens : sentences;
    config.train.steps = kSteps;
    config.checkpoint.keep_last = 0;
    return config;
  };
  struct Break {
    std::string checkpoint;
    bool half = false;  // trained in 16 bits up to there
  };
  std::map<std::vector<std::string>, Break> before;  // the last row's, by what is trained
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    INFO(row.name);
    const Config config = config_on_disk(row);
    const std::string name = folder.file(std::to_string(i));
    const Trained straight = train(config, "", name);
    REQUIRE(straight.losses.size() == kSteps);
    REQUIRE(straight.files.size() == 8);

    const Trained resumed = train(config, checkpoint_of(name, kBreak), name + "_resumed");
    CHECK(resumed.losses == std::vector<double>(straight.losses.begin() + kBreak, straight.losses.end()));
    CHECK(resumed.norms == std::vector<double>(straight.norms.begin() + kBreak, straight.norms.end()));
    CHECK(resumed.files == straight.files);  // weights and moments, bit by bit

    Break& other = before[row.trains];
    const bool half = config.precision.dtype() != DType::f32;
    if (!other.checkpoint.empty()) {
      const Trained moved = train(config, other.checkpoint, name + "_moved");
      for (std::size_t k = 0; k < moved.losses.size(); ++k) {
        CHECK(moved.losses[k] == Approx(straight.losses[kBreak + k]).epsilon(half || other.half ? 5e-3 : 1e-5));
      }
    }
    other = {checkpoint_of(name, kBreak), half};
  }
}

TEST_CASE("resume: context ranks read one rank's samples, load its checkpoints", "[fault-17]") {
  const ShardFolder folder;
  const std::string tokens = make_corpus(folder);
  const std::vector<std::string> documents = {"data.reset_attention_mask=true", "data.reset_position_ids=true",
                                              "data.eod_mask_loss=true"};
  const std::vector<std::string> curriculum = {
      "train.curriculum={schedule=\"fixed_linear\", start=8, steps=3, multiple=8}"};
  for (const auto& trains : {documents, curriculum}) {
    const auto trained_on = [&](int context, int data, const std::string& from, const std::string& name) {
      const Row row{"", 1, data, 1, {fmt::format("parallel.context={}", context), "optimizer.share=state"}, trains, ""};
      Config config = config_of(row);
      config.data.train = tokens;
      config.train.steps = kSteps;
      config.train.evaluate_steps = 2;
      config.checkpoint.keep_last = 0;
      return train(config, from, folder.file(trains.front().substr(0, 10) + name), /*evaluates=*/true);
    };
    const std::string break_of_two = checkpoint_of(folder.file(trains.front().substr(0, 10) + "two"), kBreak);
    const Trained one = trained_on(1, 1, "", "one"), two = trained_on(2, 2, "", "two");
    REQUIRE(two.files.size() == 4);
    CHECK(trained_on(2, 2, break_of_two, "again").files == two.files);
    struct Layout {
      int context, data;
    };
    for (const Layout layout : {Layout{1, 1}, Layout{4, 1}, Layout{1, 4}}) {
      CAPTURE(trains, layout.context, layout.data);
      const Trained moved =
          trained_on(layout.context, layout.data, break_of_two, fmt::format("{}x{}", layout.context, layout.data));
      REQUIRE(moved.losses.size() == kSteps - kBreak);
      for (std::size_t k = 0; k < moved.losses.size(); ++k) {
        CHECK(moved.losses[k] == Approx(one.losses[kBreak + k]).epsilon(1e-5));
        CHECK(moved.norms[k] == Approx(one.norms[kBreak + k]).epsilon(1e-4));
      }
      CHECK(moved.evaluated == Approx(one.evaluated).epsilon(1e-5));
    }
    CHECK(two.evaluated == Approx(one.evaluated).epsilon(1e-5));
    for (std::size_t k = 0; k < kSteps; ++k) CHECK(two.losses[k] == Approx(one.losses[k]).epsilon(1e-5));
  }
}
