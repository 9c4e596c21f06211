// Options of the command line: --set TABLE.KEY=VALUE.
#include "config/schema/print.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("broken --set options", "[config]") {
  CHECK(contains(set_error("train.steps"), "--set train.steps: error: expected table.key=value"));
  CHECK(contains(set_error("steps=3"), "unknown key 'steps'; did you mean 'train.steps'?"));
  CHECK(contains(set_error("train.stesp=3"), "did you mean 'steps'?"));
  CHECK(contains(set_error("run.directory=\xff\xfe"), "not valid UTF-8"));
  CHECK(contains(set_error("model.layers=" + std::string(100, '[')), "nested brackets"));
  // A newline does not smuggle in a second key.
  CHECK(parse_small({"run.directory=1\nx = 2"}).run.directory == "1\nx = 2");
  CHECK(contains(set_error("model.layers=1\nx = 2"), "expected integer, got string"));
}

TEST_CASE("--set wins over the file, the last one wins, and text needs no quotes", "[config][fault-7]") {
  const Config c = parse_small({"model.layers=6", "model.layers = 4", "run.directory=runs/a b#c", "data.split=1",
                                "checkpoint.load=2024-01-01", "model.activation=relu", "checkpoint.initialize_from="});
  CHECK(c.model.layers == 4);
  CHECK(c.run.directory == "runs/a b#c");
  CHECK(c.data.split == "1");
  CHECK(c.checkpoint.load == "2024-01-01");
  CHECK(c.model.activation == "relu");
  CHECK(parse_small({"run.directory=\"quoted\""}).run.directory == "quoted");
  CHECK(parse_small({"data.train=007"}).data.train == "007");
}

TEST_CASE("--set of one way to say a length replaces the file's", "[config]") {
  const Config c = parse_small({"train.tokens=3200"});
  CHECK(c.train.steps == 0);
  CHECK(c.train.tokens == 3200);
  CHECK(contains(error_of([] {
                   parse_small({"train.tokens=3200", "train.epochs=2"});
                 }),
                 "given are tokens = 3200, epochs = 2"));
  const Config warm =
      parse_config_text(small_file() + "[learning_rate]\nwarmup_steps = 10\ndecay_steps = 50\n", "f.toml",
                        {"learning_rate.warmup_fraction=0.1", "learning_rate.decay_samples=300"});
  CHECK(warm.learning_rate.warmup_steps == 0);
  CHECK(warm.learning_rate.warmup_fraction == 0.1);
  CHECK(warm.learning_rate.decay_steps == 0);
  CHECK(warm.learning_rate.decay_samples == 300);
}

TEST_CASE("a rule between the file and an option points at the option", "[config]") {
  CHECK(
      contains(set_error("model.hidden_size=50"), "--set model.hidden_size=50: error: model.hidden_size = 50 is not"));
}
