// Runs that would resume with other data than they began with: in another order of samples only when they are told to,
// with other evaluations after a warning. What a checkpoint is too old to say is no difference.
#include "checkpoint/store/manifest.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A run of one step that has been trained, and the same with a second one.
struct ChangedRun {
  ChangedRun() {
    config.data.train.parts = {{make_set("a", 98), 1}, {make_set("b", 97), 1}};
    config.learning_rate.decay = "constant";
    config.checkpoint.every_steps = config.train.steps = 1;
    config.train.evaluate_steps = 1;
    config.run.directory = folder.file("run");
  }

  std::string make_set(const std::string& name, std::uint64_t hash) const {
    Documents documents(60, std::vector<std::int32_t>(20));
    for (std::size_t i = 0; i < 60 * 20; ++i) documents[i / 20][i % 20] = TinyBatches::token(2, i, hash, 49);
    make_shard(folder.file(name), documents, 0, 1, small_vocabulary(50), hash);
    return folder.file(name);
  }
  void train() {
    REQUIRE(run_loop(config).told[0].empty());
    config.train.steps = 2;
  }
  /// Makes the checkpoint one of before these facts of the order were recorded.
  void forget(const std::vector<std::string>& facts) const {
    const std::string path = config.run.directory + "/checkpoints/step_00000001/manifest.json";
    Manifest manifest = parse_manifest(contents_of(path));
    for (const std::string& fact : facts) REQUIRE(manifest.state.extra.at("order").erase(fact) == 1);
    write_file(path, manifest_text(manifest));
  }
  static void require_refused(const Config& changed, const std::string& for_what) {
    CHECK_THAT(run_loop(changed).told[0], Contains("the order of samples would change") && Contains(for_what));
  }
  /// Returns the part of the log after the first run.
  static std::string require_resumed(const Config& changed) {
    const LoopResult result = run_loop(changed);
    CHECK(result.told[0].empty());
    CHECK(result.metrics.back().at("step") == 2);
    return result.log.substr(result.log.find("resuming from"));
  }

  ShardFolder folder;
  int others = 0;
  Config config = tiny_config();
};

}  // namespace

TEST_CASE("changed data: a blend without recorded sets needs the same data") {
  ChangedRun run;
  run.train();
  run.forget({"blend_sets", "seed", "training_share"});
  Config changed = run.config;
  std::swap(changed.data.train.parts[0], changed.data.train.parts[1]);
  run.require_refused(changed, "\n  blend_sets: others, or these in another order, in the checkpoint, [");
  changed = run.config;
  changed.data.train.parts[0].weight = 2;
  run.require_refused(changed, "\n  blend_weights: [0.5,0.5]");
  CHECK_THAT(run.require_resumed(run.config), !Contains("warning"));
}

TEST_CASE("changed data: a resume needs the same seed and part of the data") {
  ChangedRun run;
  run.config.data.train.parts.resize(1);
  run.train();
  Config seeded = run.config, cut = run.config, apart = run.config;
  seeded.train.seed += 1;
  run.require_refused(seeded, "\n  seed: ");
  cut.data.split = "90,10";
  run.require_refused(cut, "\n  training_share: ");
  apart.data.validation = run.make_set("v", 96);
  run.require_refused(apart, "\n  training_share: ");
  seeded.checkpoint.load = run.config.run.directory;
  seeded.run.directory = run.folder.file("other");
  CHECK_THAT(run_loop(seeded).log, Contains("in another order") && Contains("  seed: 1234 in the checkpoint, 1235"));
  run.forget({"seed", "training_share"});
  CHECK_THAT(run.require_resumed(run.config), !Contains("warning"));
}

TEST_CASE("resume: a split by documents is kept or refused by name") {
  ChangedRun run;
  run.config.data.train.parts.resize(1);
  run.config.data.split_by = "documents";  // all there was when older checkpoints were written
  run.train();
  Config by_tokens = run.config;
  by_tokens.data.split_by = "auto";
  run.require_refused(by_tokens,
                      "\n  split_by: \"documents\", which data.split_by = \"documents\" keeps, in the checkpoint, "
                      "[\"tokens\"] in this run");
  CHECK_THAT(run.require_resumed(run.config), !Contains("warning"));
}

TEST_CASE("changed data: a resume with other evaluations warns about their losses") {
  ChangedRun run;
  run.config.data.validation.parts = {{run.make_set("v", 96), 1}, {run.make_set("w", 95), 1}};
  run.config.data.split = "1";
  run.train();
  Config changed = run.config;
  const auto told = [&] {
    changed.checkpoint.load = run.config.run.directory;
    changed.run.directory = run.folder.file(fmt::format("other {}", ++run.others));
    return run.require_resumed(changed);
  };
  CHECK_THAT(told(), !Contains("warning"));
  std::swap(changed.data.validation.parts[0], changed.data.validation.parts[1]);
  CHECK_THAT(told(), Contains("warning: evaluations are of other samples than before") &&
                         Contains("  validation.sets: [\"0000000000000060, documents 0 to 60\",\"000000000000005f") &&
                         !Contains("weights:"));
  changed = run.config;
  changed.data.validation.parts[1].weight = 3;
  CHECK_THAT(told(), Contains("  validation.weights: [0.5,0.5] in the checkpoint, [0.25,0.75] in this run"));
  changed = run.config;
  changed.data.test = run.make_set("t", 94);  // evaluated on from here on
  CHECK_THAT(told(), !Contains("warning"));
}
