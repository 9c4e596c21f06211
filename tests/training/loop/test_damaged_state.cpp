// A checkpoint whose files are whole and whose training state makes no sense: not a number of it is believed.
#include <cmath>
#include <fstream>

#include "checkpoint/store/manifest.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("damaged state: senseless counters and loss scales say what is wrong", "[fault-17][fault-35]") {
  using nlohmann::json;
  const ShardFolder folder;
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.precision.compute = "fp16";
  config.train.steps = 2;
  config.checkpoint.every_steps = 2;
  config.run.directory = folder.file("good");
  REQUIRE(run_loop(config).told[0].empty());
  const std::string path = config.run.directory + "/checkpoints/step_00000002", manifest = path + "/manifest.json";
  const std::string good = contents_of(manifest);
  config.train.steps = 3;
  config.checkpoint.every_steps = 0;
  config.checkpoint.load = path;
  config.run.directory = folder.file("next");
  struct Damage {
    const char* where;
    json value;  // nothing there if it is a NaN, which JSON has not
    const char* said;
  };
  const Damage cases[] = {
      {"/updates", NAN, "\"updates\" is missing"},
      {"/updates", "many", "\"updates\" is not an integer"},
      {"/updates", 1.5, "\"updates\" is not an integer"},
      {"/updates", -1, "\"updates\" is -1"},
      {"/updates", 3, "\"updates\" is 3, outside of 0 ... 2"},
      {"/loss_scaler", 7, "\"loss_scaler\" is not an object"},
      {"/loss_scaler/scale", NAN, "\"scale\" is missing"},
      {"/loss_scaler/scale", nullptr, "\"scale\" is not a number"},
      {"/loss_scaler/scale", "big", "\"scale\" is not a number"},
      {"/loss_scaler/scale", -1, "a loss scale of -1"},
      {"/loss_scaler/scale", 1e300, "a loss scale of 1e+300"},
      {"/loss_scaler/good_steps", -1, "\"good_steps\" is -1"},
      {"/loss_scaler/hysteresis_left", 0.5, "\"hysteresis_left\" is not an integer"},
      {"/loop", json::array(), "\"loop\" is not an object"},
      {"/loop/skipped", -1, "\"skipped\" is -1"},
      {"/loop/skipped_in_a_row", nullptr, "\"skipped_in_a_row\" is not an integer"},
      {"/loop/skipped_in_all", 3, "\"skipped_in_all\" is 3"},
      {"/loop/evaluations_due", 3, "its training state is damaged"},
      {"/loop/evaluations_due", {"sometime"}, "an evaluation on \"sometime\" is due"},
      {"/config", 3, "its training state is damaged"},
      {"/data_hash", NAN, "its training state is damaged"},
      {"/order", 3, "\"order\" is not an object"},
      {"/optimizer", 3, "\"optimizer\" is not a text"},
  };
  for (const Damage& damage : cases) {
    CAPTURE(damage.where, damage.value);
    Manifest changed = parse_manifest(good);
    const json::json_pointer pointer(damage.where);
    if (damage.value.is_number_float() && std::isnan(damage.value.get<double>())) {
      changed.state.extra[pointer.parent_pointer()].erase(pointer.back());
    } else {
      changed.state.extra[pointer] = damage.value;
    }
    std::ofstream(manifest) << manifest_text(changed);
    const std::string told = run_loop(config).told[0];
    CHECK_THAT(told, StartsWith("checkpoint: " + path + ": its training state is damaged: ") && Contains(damage.said));
  }
  std::ofstream(manifest) << good;
  CHECK(run_loop(config).told[0].empty());
}
