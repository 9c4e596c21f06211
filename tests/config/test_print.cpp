#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "config/parse/presets.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config again(const Config& config) {
  return parse_config_text(print_config(config), "printed.toml");
}

}  // namespace

TEST_CASE("the schema: every key once, in a table that exists, with help", "[config]") {
  std::set<std::string> names, tables;
  for (const TableDescription& table : schema_tables()) tables.insert(std::string(table.name));
  for (const Key& key : schema()) {
    INFO(key.full_name());
    CHECK(names.insert(key.full_name()).second);
    CHECK(tables.count(std::string(key.table)) == 1);
    CHECK(key.help.size() > 3);
    // The text printed for a default that is given must be acceptable as input.
    const std::string value = print_value(key, Config{});
    if (key.absent.empty()) CHECK_FALSE(value.empty());
    if (!key.absent.empty()) CHECK(value.empty());
    if (!value.empty()) CHECK(error_of([&] { parse_small({key.full_name() + "=" + value}); }).empty());
  }
}

TEST_CASE("a printed configuration reads back identical", "[config][fault-7]") {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"model.preset=gpt2-xl", "model.layers=6"},
      {"parallel.pipeline=2", "parallel.layers_per_stage=[5, 7]", "parallel.sequence_parallel=true"},
      {"train.batch_ramp_up={start = 2, increment = 2, samples = 40}", "train.evaluate_every=epoch",
       "train.epochs=0.1"},
      {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=9, multiple=2}", "train.tokens=9999"},
      {"train.curriculum={schedule=\"fixed_root\", start=8, steps=9, root_degree=3}",
       "learning_rate.decay_tokens=9000"},
      {"model.position_embedding=rope", "model.rotary_base=500000", "model.rotary_fraction=0.5",
       "model.rotary_scaling={type=\"llama3\", factor=8, low_frequency_factor=0.5, original_length=64}",
       "model.activation=swiglu", "model.query_key_norm=true", "model.attention_softcap=50"},
      {"model.position_embedding=rope", "model.rotary_scaling={type=\"linear\", factor=2.5}"},
      {"train.curriculum={schedule=\"fixed_discrete\", lengths=[6, 16], until=[7]}"},
      {"model.family=bert", "task.name=classification", "task.labels=[\"no\", \"a \\\"b\\\"\"]", "task.tokenizer=byte"},
      {"model.family=bert", "task.name=classification", "task.labels=3", "task.tokenizer=unigram",
       "task.vocab_file=v.json", "task.extra_ids=20"},
      {"model.family=bert", "task.name=classification", "task.labels=3", "train.epochs=2", "data.validation=v"},
      {"model.family=bert", "task.name=multiple_choice", "task.format=race", "task.choices=5"},
      {"task.name=instructions", "task.user_prefix=\"<|u|>\\n\"", "task.assistant_suffix=\"\""},
      {"learning_rate.peak=0.1", "learning_rate.minimum=1e-37", "model.init_std=3.0000000000000004e-3"},
      {"optimizer.betas=[0.3333333333333333, 0.9999999000000001]", "optimizer.clip_grad_norm=0", "train.seed=0",
       "optimizer.moments_dtype=bf16"},
      {"optimizer.scaling=mup", "model.base_hidden_size=24", "model.base_head_size=2"},
      {"learning_rate.peak=1e10", "optimizer.epsilon=123456789.125", "checkpoint.every_minutes=0.5"},
      {"run.directory=\"a \\\"b\\\\c\\u0007\\n\\t # é日本\"", "data.test='C:\\x'", "data.validation=é"},
      {"data.train=[{path = \"a\", weight = 0.1}, {path = \"b\\\"\", weight = 3}]",
       "data.validation=[{path = \"a\", weight = 2}]", "data.test=[{path = \"a\", weight = 1}]"},
      {"checkpoint.resume=false", "run.device=cuda", "loss.name=key_tokens", "loss.token_ids=[3, 99]",
       "loss.alpha=0.125"},
      {"data.split=\"\\u0031\"", "checkpoint.load=x", "checkpoint.keep_last=0"},
      {"checkpoint.every_steps=never", "train.stop_after=7"},
      {"recompute.mode=selective", "recompute.parts=[\"feed_forward\", \"norms\"]"},
  };
  const DataFacts data{100, 1000};
  for (const auto& options : cases) {
    Config config = parse_small(options);
    INFO(print_config(config));
    CHECK(again(config) == config);
    resolve(config, 2, &data);
    CHECK(again(config) == config);
  }
}

TEST_CASE("the given keys of a configuration read back identical", "[config]") {
  for (const std::string option : {"train.steps=7", "model.preset=llama3-8b", "model.preset=mixtral-8x7b"}) {
    INFO(option);
    Config config = parse_small({option, "parallel.tensor=2", "run.directory=\"x # y\""});
    const std::string text = print_given_keys(config, with_preset_alone(config));
    INFO(text);
    CHECK(print_config(parse_config_text(text, "given.toml")) == print_config(config));
    CHECK(lines(text) < 40);
    CHECK(contains(text, "tensor = 2 "));
    CHECK(contains(text, "  # "));
  }
}

TEST_CASE("any key changes the printed configuration", "[config][fault-6]") {
  const Config base = parse_small();
  std::set<std::string> texts = {print_config(base)};
  for (const char* option : {"model.layers=6", "train.seed=1", "optimizer.betas=[0.9, 0.95]", "run.directory=other",
                             "learning_rate.peak=0.00010000000000000002", "train.evaluate_every=epoch"}) {
    CHECK(texts.insert(print_config(parse_small({option}))).second);
  }
}

TEST_CASE("changed keys: new values with the old ones", "[config]") {
  const std::string saved = print_config(parse_small({"data.test=x", "learning_rate.peak=0.5"}));
  CHECK(changed_keys(saved, parse_small({"data.test=x", "learning_rate.peak=0.5"})).empty());
  CHECK(changed_keys(saved, parse_small({"learning_rate.peak=0.25", "checkpoint.every_steps=never"})) ==
        std::vector<std::string>{"learning_rate.peak = 0.25 (was 0.5)", "data.test = not set (was \"x\")",
                                 "checkpoint.every_steps = \"never\" (was 0)"});
  // A key that an older version did not write has its default.
  CHECK(changed_keys("[model]\n", Config{}).empty());
}

TEST_CASE("the given keys of some tables: those that are not as by default", "[config]") {
  static constexpr std::array<std::string_view, 2> kTables = {"model", "moe"};
  CHECK(print_given(Config{}, Config{}, kTables).empty());
  Config config;
  config.model.layers = 3;
  config.model.bias = false;
  config.model.moe.experts = 4;
  config.train.seed = 7;
  CHECK(print_given(config, Config{}, kTables) == "[model]\nlayers = 3\nbias = false\n\n[moe]\nexperts = 4\n");
}

TEST_CASE("every input file survives print and parse, before and after resolving", "[config]") {
  const std::pair<const char*, int> files[] = {
      {"demo.toml", 8},         {"gpt2_124m.toml", 8},     {"gpt2_345m.toml", 4},      {"gpt2_large.toml", 4},
      {"gpt3_175b.toml", 1024}, {"scaling_1.7b.toml", 32}, {"scaling_530b.toml", 2520}};
  const DataFacts data{257, 100000};
  for (const auto& [name, ranks] : files) {
    INFO(name);
    Config config = parse_config((repository() / "inputs" / name).string());
    CHECK(again(config) == config);
    resolve(config, ranks, &data);
    CHECK(again(config) == config);
  }
}

TEST_CASE("inputs/README.md is what the schema says", "[config][reference]") {
  const auto path = repository() / "inputs/README.md";
  if (std::getenv("MEGATRON_WRITE_REFERENCE") != nullptr) std::ofstream(path) << config_reference();
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  INFO("to write it: MEGATRON_WRITE_REFERENCE=1 build/tests/test_config '[reference]'");
  CHECK(text == config_reference());
  for (const Key& key : schema()) CHECK(contains(text, "| `" + std::string(key.name) + "` |"));
}
