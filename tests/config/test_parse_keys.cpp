// Keys whose values are more than a number or a word: lists, intervals, sets of data, paths.
#include <cstdlib>

#include "config/parse/set_value.h"
#include "config/schema/print.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("recompute.parts: names of the table, each once", "[config]") {
  const auto with_parts = [](const std::string& parts) {
    return std::vector<std::string>{"recompute.mode=selective", "recompute.parts=" + parts};
  };
  const RecomputeConfig two = parse_small(with_parts("[\"feed_forward\", \"norms\"]")).recompute;
  CHECK(two.parts == RecomputeParts{RecomputePart::norms, RecomputePart::feed_forward});
  CHECK(two.parts_made() == two.parts);
  CHECK(two.of_chunk(4) == 0);
  const RecomputeConfig usual = parse_small({"recompute.mode=selective"}).recompute;
  CHECK(usual.parts.empty());
  CHECK(usual.parts_made() == RecomputeParts{RecomputePart::norms, RecomputePart::activations});
  CHECK(parse_small({"recompute.mode=full"}).recompute.parts_made().empty());
  const std::string names = "\"norms\", \"activations\", \"feed_forward\"";
  for (const auto& [parts, problem] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "recompute.parts is empty; leave it out instead"},
           {"[\"norm\"]", "has \"norm\", which is not one of " + names + "; did you mean \"norms\"?"},
           {"[\"norms\", \"norms\"]", "recompute.parts has \"norms\" twice"},
           {"norms", "expected array of " + names + ", got string \"norms\""},
           {"[1]", "recompute.parts is not an array of " + names}}) {
    CHECK(contains(error_of([&, chosen = parts] { parse_small(with_parts(chosen)); }), problem));
  }
}

TEST_CASE("checkpoint.every_steps: a number or never", "[config]") {
  CHECK_FALSE(parse_small().checkpoint.never);
  CHECK(parse_small({"checkpoint.every_steps=never"}).checkpoint.never);
  const Config back = parse_config_text(small_file() + "[checkpoint]\nevery_steps = \"never\"\n", "f.toml",
                                        {"checkpoint.every_steps=5"});
  CHECK_FALSE(back.checkpoint.never);
  CHECK(back.checkpoint.every_steps == 5);
  CHECK(contains(set_error("checkpoint.every_steps=often"),
                 "checkpoint.every_steps: expected integer or \"never\", got string \"often\""));
  CHECK(contains(error_of([] {
                   parse_small({"checkpoint.every_steps=never", "checkpoint.every_minutes=5"});
                 }),
                 "checkpoint.every_minutes = 5 contradicts checkpoint.every_steps = \"never\""));
}

TEST_CASE("checkpoint.every_minutes: 30 unless given or never", "[config][fault-120]") {
  CHECK(parse_small().checkpoint.minutes_between() == 30);
  CHECK(parse_small({"checkpoint.every_minutes=0"}).checkpoint.minutes_between() == 0);
  CHECK(parse_small({"checkpoint.every_steps=never"}).checkpoint.minutes_between() == 0);
  CHECK(parse_small({"checkpoint.every_steps=never", "checkpoint.every_minutes=0"}).checkpoint.never);
}

TEST_CASE("checkpoint: keys that need others", "[config]") {
  const auto refused = [](std::vector<std::string> settings) { return error_of([&] { parse_small(settings); }); };
  CHECK(contains(refused({"checkpoint.keep_best=true", "train.evaluate_every=0"}),
                 "train.evaluate_every = 0 makes only"));
  CHECK(contains(refused({"checkpoint.keep_best=true", "train.evaluate_every=5", "checkpoint.every_steps=never"}),
                 "checkpoint.keep_best = true contradicts checkpoint.every_steps = \"never\""));
  CHECK(parse_small({"checkpoint.keep_best=true", "train.evaluate_every=epoch"}).checkpoint.keep_best);
  CHECK(contains(refused({"checkpoint.consumed_samples=80"}), "name them with checkpoint.initialize_from"));
  CHECK(parse_small({"checkpoint.consumed_samples=80", "checkpoint.initialize_from=x"}).checkpoint.consumed_samples ==
        80);
}

TEST_CASE("data.validation: sets with names", "[config]") {
  const std::string value = R"(data.validation=[{name="a", path="x", weight=3}, {name="b", path="y"}])";
  const Config config = parse_small({value});
  REQUIRE(config.data.validation.named());
  CHECK(config.data.validation.parts[1].name == "b");
  CHECK(config.data.validation.parts[0].weight == 3);
  CHECK(contains(print_config(config),
                 R"(validation = [{name = "a", path = "x", weight = 3.0}, {name = "b", path = "y")"));
  CHECK(parse_config_text(print_config(config), "f.toml").data.validation == config.data.validation);
  CHECK_FALSE(parse_small({"data.validation=x"}).data.validation.named());
}

TEST_CASE("train.evaluate_every: each pass is the default of a head's task", "[config]") {
  const auto each_pass = [](std::vector<std::string> more) {
    std::vector<std::string> settings = {"model.family=bert", "task.name=classification", "task.labels=2"};
    settings.insert(settings.end(), more.begin(), more.end());
    return parse_small(settings).train.evaluate_every_epoch;
  };
  CHECK(each_pass({"train.epochs=3", "data.validation=v"}));
  CHECK_FALSE(each_pass({"train.epochs=3"}));
  CHECK_FALSE(each_pass({"data.validation=v"}));  // 100 steps
  CHECK_FALSE(each_pass({"train.epochs=3", "data.validation=v", "train.evaluate_every=0"}));
  CHECK_FALSE(each_pass({"train.epochs=3", "data.validation=v", "train.evaluate_every=7"}));
  CHECK_FALSE(parse_small({"train.epochs=3", "data.validation=v"}).train.evaluate_every_epoch);
}

TEST_CASE("whole numbers may be written like 3e5", "[config]") {
  const Config c =
      parse_small({"train.steps=1e3", "train.seed=2.0", "parallel.pipeline=2", "parallel.layers_per_stage=[1e1, 2]",
                   "evaluation.tasks=[{task = \"lambada\", data = \"x\", every = 2e2}]"});
  CHECK(c.train.steps == 1000);
  CHECK(c.train.seed == 2);
  CHECK(c.parallel.layers_per_stage == std::vector<std::int64_t>{10, 2});
  CHECK(c.evaluation.tasks.at(0).every == 200);
}

TEST_CASE("variables in paths", "[config]") {
  const std::string home = "/home/ada";
  ::setenv("HOME", home.c_str(), 1);
  ::setenv("MEGATRON_TEST_ROOT", "/scratch/übung", 1);
  ::unsetenv("MEGATRON_TEST_UNSET");
  const Config c =
      parse_small({"run.directory=${MEGATRON_TEST_ROOT}/runs/${MEGATRON_TEST_ROOT}", "data.test=$MEGATRON_TEST_ROOT/x",
                   "data.train=[\"~/a\", {path = \"~\", weight = 2}]", "data.validation=cost$5~/$"});
  CHECK(c.run.directory == "/scratch/übung/runs//scratch/übung");
  CHECK(c.data.test == "/scratch/übung/x");
  CHECK(c.data.train.parts.at(0).path == home + "/a");
  CHECK(c.data.train.parts.at(1).path == home);
  CHECK(c.data.validation == "cost$5~/$");
  for (const Key& key : schema()) {  // every key that is a path
    if (!key.constraint.path || !std::holds_alternative<Access<std::string>>(key.access)) continue;
    CAPTURE(key.full_name());
    Config config;
    CHECK(set_value(key, "~/of/" + std::string(key.name), config).empty());
    CHECK(std::get<Access<std::string>>(key.access)(config) == home + "/of/" + std::string(key.name));
  }
  CHECK(contains(set_error("run.directory=~someone/x"), "run.directory: ~ stands for your own home"));
  CHECK(contains(set_error("run.directory=${MEGATRON_TEST_UNSET}/x"),
                 "run.directory: the environment variable 'MEGATRON_TEST_UNSET' is not set"));
  CHECK(contains(set_error("data.train=${MEGATRON_TEST_UNSET}"), "is not set"));
  CHECK(contains(set_error("run.directory=${MEGATRON"), "has a ${ without a }"));
  ::setenv("MEGATRON_TEST_ROOT", "${HOME}", 1);  // would not survive printing and reading again
  CHECK(contains(set_error("run.directory=${MEGATRON_TEST_ROOT}"), "expands to another variable"));
  ::setenv("MEGATRON_TEST_ROOT", "\xff", 1);
  CHECK(contains(set_error("run.directory=${MEGATRON_TEST_ROOT}"), "not valid UTF-8"));
}
