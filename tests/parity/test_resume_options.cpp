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
  std::map<std::string, std::string> files;  ///< the last checkpoint's, by rank
};

std::string checkpoint_of(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/checkpoints/step_{:08}", directory, step);
}

/// From the checkpoint `from` (empty: from the start) to the last step, with checkpoints at the break and at the end.
Trained train(const Config& config, const std::string& from, const std::string& directory) {
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
