#include "config/parse/set_value.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"
#include "config/schema/suggestions.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a complete file is read, and everything else keeps its default", "[config]") {
  const Config c = parse_small();
  CHECK(c.model.layers == 12);
  CHECK(c.train.steps == 100);
  CHECK(c.data.train == "data/x");
  CHECK(c.model.ffn_hidden_size == 0);  // derived by resolve, not by parse
  CHECK(c.learning_rate.peak == 1e-4);
  CHECK(c.checkpoint.resume);
}

TEST_CASE("every kind of value", "[config]") {
  const Config c =
      parse_config_text(small_file() +
                            "order = \"megatron\"\n"
                            "[optimizer]\nbetas = [0.8, 0.95]\nepsilon = 1e-6\nweight_decay = 0\n"
                            "[parallel]\npipeline = 3\nlayers_per_stage = [3, 5, 4]\nsequence_parallel = true\n"
                            "[learning_rate]\npeak = 1\nwarmup_steps = 0\n",
                        "f.toml",
                        {"train.batch_ramp_up={start = 2, increment = 3, samples = 40}", "train.evaluate_every=epoch",
                         "train.seed=4294967295"});
  CHECK(c.optimizer.beta1 == 0.8);
  CHECK(c.optimizer.beta2 == 0.95);
  CHECK(c.optimizer.weight_decay == 0);
  CHECK(c.parallel.layers_per_stage == std::vector<std::int64_t>{3, 5, 4});
  CHECK(c.parallel.sequence_parallel);
  CHECK(c.learning_rate.peak == 1.0);  // an integer is a number
  CHECK(c.train.batch_ramp_up == BatchRampUp{2, 3, 40});
  CHECK(c.train.evaluate_every_epoch);
  CHECK(c.train.seed == 4294967295);
  CHECK(parse_small({"train.seed=9000000000000000000"}).train.seed == 9000000000000000000u);
  CHECK(parse_small({"train.evaluate_every=7"}).train.evaluate_every == 7);
  CHECK(parse_small().model.bias == BiasConfig{true, true, true});
  for (const auto& [text, bias] :
       {std::pair("true", BiasConfig{true, true, true}), std::pair("false", BiasConfig{false, false, false}),
        std::pair("attention", BiasConfig{true, true, false}),
        std::pair("query_key_value", BiasConfig{true, false, false}),
        std::pair("feed_forward", BiasConfig{false, false, true})}) {
    CAPTURE(text);
    const Config read = parse_small({std::string("model.bias=") + text});
    CHECK(read.model.bias == bias);
    CHECK(parse_config_text(print_config(read), "printed").model.bias == bias);
  }
  const Config blend = parse_small({"data.train=[{path = \"a\", weight = 1}, {path = \"b\", weight = 0.5}]"});
  CHECK(blend.data.train.parts == std::vector<BlendPart>{{"a", 1}, {"b", 0.5}});
}

TEST_CASE("a string that is not closed asks for its quote", "[config]") {
  CHECK(contains(parse_error("[run]\ndirectory = \"runs/a\nthreads = 2\n"), "(is a closing quote missing?)"));
}

TEST_CASE("unknown keys and tables name the place and the nearest known key", "[config][fault-1]") {
  struct Case {
    std::string text, expected;
  };
  const Case cases[] = {
      {"[model]\nhiden_size = 4\n", "f.toml:2:1: error: unknown key 'model.hiden_size'; did you mean 'hidden_size'?"},
      {"[model]\n  Layers = 4\n", "f.toml:2:3: error: unknown key 'model.Layers'; did you mean 'layers'?"},
      {"[model]\nnum_layers = 4\n", "f.toml:2:1: error: unknown key 'model.num_layers'; did you mean 'layers'?"},
      {"[model]\ntensor = 4\n", "f.toml:2:1: error: unknown key 'model.tensor'; did you mean 'parallel.tensor'?"},
      {"[train]\nlr = 1e-3\n", "f.toml:2:1: error: unknown key 'train.lr'; did you mean 'learning_rate.peak'?"},
      {"layers = 3\n", "f.toml:1:1: error: unknown key 'layers'; did you mean 'model.layers'?"},
      {"tensor_model_parallel_size = 3\n", "unknown key 'tensor_model_parallel_size'; did you mean 'parallel.tensor'?"},
      {"[run]\nqqqqqqqq = 3\n", "f.toml:2:1: error: unknown key 'run.qqqqqqqq'; inputs/README.md lists the keys"},
      {"[modle]\nlayers = 3\n", "f.toml:1:2: error: unknown table 'modle'; did you mean 'model'?"},
      {"[zzzzzzzzz]\n", "f.toml:1:2: error: unknown table 'zzzzzzzzz'; inputs/README.md lists the tables"},
      {"model.hiden_size = 3\n", "unknown key 'model.hiden_size'; did you mean 'hidden_size'?"},
      {"[train.batch_ramp_up]\nstrat = 3\n",
       "unknown key 'train.batch_ramp_up.strat'; it has start, increment and samples"},
      {"model = 3\n", "f.toml:1:1: error: model: expected table, got integer"},
      {"[[model]]\nlayers = 3\n", "model: expected table, got array"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    const std::string error = parse_error(c.text);
    INFO(error);
    CHECK(contains(error, c.expected));
  }
}

TEST_CASE("every alias leads to a key that exists and is not a key itself", "[config]") {
  for (const KeyAlias& alias : key_aliases()) {
    INFO(alias.theirs);
    const auto dot = alias.ours.find('.');
    CHECK(find_key(alias.ours.substr(0, dot), alias.ours.substr(dot + 1)) != nullptr);
    CHECK(suggest_key("", alias.theirs) == alias.ours);
    CHECK(std::none_of(schema().begin(), schema().end(), [&](const Key& key) { return key.name == alias.theirs; }));
  }
  CHECK(edit_distance("hiden_size", "hidden_size") == 1);
  CHECK(edit_distance("lyaers", "layers") == 1);
  CHECK(edit_distance("abc", "") == 3);
}

TEST_CASE("an unknown key brings no second message that the meant one is missing", "[config]") {
  std::string text = small_file();
  text.replace(text.find("layers"), 6, "n_layer");
  const std::string error = parse_error(text);
  INFO(error);
  CHECK(lines(error) == 1);
}

TEST_CASE("wrong types and values out of range are named", "[config][fault-2][fault-5]") {
  struct Case {
    std::string option, expected;
  };
  const Case cases[] = {
      {"model.layers=\"12\"", "model.layers: expected integer, got string \"12\""},
      {"model.layers=x", "--set model.layers=x: error: model.layers: expected integer, got string \"x\""},
      {"model.layers=1.5", "model.layers: expected integer, got number 1.5"},
      {"model.bias=qkv",
       "model.bias: expected true, false, \"attention\", \"query_key_value\" or \"feed_forward\", got string \"qkv\""},
      {"model.residual=serial", "model.residual = \"serial\" is not one of \"sequential\", \"parallel\""},
      {"model.attention_window=0", "model.attention_window = 0 is out of range: at least 1"},
      {"model.layers=1.5e0", "model.layers: expected integer, got number 1.5"},
      {"train.steps=1e30", "train.steps: expected integer, got number 1e+30"},
      {"model.layers=nan", "model.layers: expected integer, got number nan"},
      {"model.layers=true", "model.layers: expected integer, got true or false"},
      {"model.layers=[1]", "model.layers: expected integer, got array of 1"},
      {"model.layers={a=1}", "model.layers: expected integer, got table"},
      {"model.layers=2024-01-01", "model.layers: expected integer, got date or time"},
      {"model.layers=", "model.layers: expected integer, got string \"\""},
      {"model.layers=-3", "model.layers = -3 is out of range: at least 1"},
      {"model.layers=0", "model.layers = 0 is out of range: at least 1"},
      {"model.layers=9223372036854775807", "model.layers = 9223372036854775807 is out of range"},
      {"model.layers=9223372036854775808", "model.layers = 9223372036854775808 is out of range: not a 64-bit integer"},
      {"train.tokens=-9223372036854775808", "train.tokens = -9223372036854775808 is out of range"},
      {"train.seed=-1", "train.seed = -1 is out of range: at least 0"},
      {"learning_rate.peak=fast", "learning_rate.peak: expected number, got string \"fast\""},
      {"learning_rate.peak=nan", "learning_rate.peak = nan is not a finite number"},
      {"learning_rate.peak=inf", "learning_rate.peak = inf is not a finite number"},
      {"learning_rate.peak=0", "learning_rate.peak = 0 is out of range: above 0"},
      {"learning_rate.minimum=-1e-5", "learning_rate.minimum = -1e-05 is out of range: at least 0"},
      {"model.attention_softcap=-1", "model.attention_softcap = -1 is out of range: at least 0, at most 10^6"},
      {"loss.alpha=1e300", "loss.alpha = 1e+300 is out of range: at least 0, at most 10^6"},
      {"model.head_chunks=0", "model.head_chunks = 0 is out of range: at least 1"},
      {"model.hidden_dropout=1", "model.hidden_dropout = 1 is out of range: at least 0, below 1"},
      {"train.epochs=0", "train.epochs = 0 is out of range: above 0"},
      {"checkpoint.resume=1", "checkpoint.resume: expected true or false, got integer"},
      {"model.activation=glue",
       "model.activation = \"glue\" is not one of \"gelu\", \"gelu_exact\", \"relu\", \"swiglu\", \"geglu\", "
       "\"tanh\"; did you mean"},
      {"model.preset=gpt2-lrage", "did you mean \"gpt2-large\"?"},
      {"model.rotary_fraction=0", "model.rotary_fraction = 0 is out of range: above 0, at most 1"},
      {"model.rotary_fraction=1.5", "model.rotary_fraction = 1.5 is out of range: above 0, at most 1"},
      {"model.rotary_base=1", "model.rotary_base = 1 is out of range: above 1"},
      {"model.rotary_scaling=8", "model.rotary_scaling: expected table {type, factor, ...}, got integer"},
      {"model.rotary_scaling={factor=8}", "model.rotary_scaling.type is not one of \"linear\", \"llama3\""},
      {"model.rotary_scaling={type=\"linear\"}", "model.rotary_scaling needs a factor: {type = \"linear\", factor = 8"},
      {"model.rotary_scaling={type=\"linear\", factor=0}", "model.rotary_scaling.factor = 0 is out of range: above 0"},
      {"model.rotary_scaling={type=\"linear\", factor=\"x\"}",
       "model.rotary_scaling.factor: expected number, got string \"x\""},
      {"model.rotary_scaling={type=\"llama3\", factor=8, original_length=0.5}",
       "model.rotary_scaling.original_length: expected integer, got number 0.5"},
      {"model.rotary_scaling={type=\"linear\", factor=2, original_length=64}",
       "unknown key 'model.rotary_scaling.original_length'; type \"linear\" has factor"},
      {"optimizer.betas=[0.9]", "optimizer.betas: expected array of two numbers, got array of 1"},
      {"optimizer.betas=0.9", "optimizer.betas: expected array of two numbers, got number 0.9"},
      {"optimizer.betas=[0.9, 1.0]", "optimizer.betas[1] = 1 is out of range: at least 0, below 1"},
      {"optimizer.betas=[0.9, \"x\"]", "optimizer.betas[1]: expected number, got string \"x\""},
      {"parallel.layers_per_stage=[]", "parallel.layers_per_stage is empty"},
      {"parallel.layers_per_stage=[4, 0]", "parallel.layers_per_stage[1] = 0 is out of range: at least 1"},
      {"parallel.layers_per_stage=[4, 2.5]", "parallel.layers_per_stage[1]: expected integer, got number 2.5"},
      {"parallel.layers_per_stage=4", "parallel.layers_per_stage: expected array of integers, got integer"},
      {"train.batch_ramp_up=16", "train.batch_ramp_up: expected table {start, increment, samples}, got integer"},
      {"train.batch_ramp_up={start=1, increment=1}", "train.batch_ramp_up needs start, increment and samples"},
      {"train.batch_ramp_up={start=0, increment=1, samples=1}", "train.batch_ramp_up.start = 0 is out of range"},
      {"train.batch_ramp_up={start=1, increment=x, samples=1}", "expected table"},
      {"train.evaluate_every=\"day\"", "train.evaluate_every: expected integer or \"epoch\", got string \"day\""},
      {"train.evaluate_every=-1", "train.evaluate_every = -1 is out of range: at least 0"},
      {"data.train=", "data.train is empty"},
      {"data.train=[]", "data.train is an empty array"},
      {"data.train=[3]",
       "data.train[0]: expected a path or {name = \"...\", path = \"...\", weight = ...}, got integer"},
      {"data.train=[\"a\", \"\"]", "data.train[1]: expected a path"},
      {"data.train=[{weight = 2}]", "data.train[0]: expected a path or {name"},
      {"run.directory=", "run.directory is empty; name a folder"},
      {"learning_rate=3", "'learning_rate' is a table, and its keys are peak, minimum, warmup_steps,"},
      {"run.device=gpu", "did you mean \"cuda\"?"},
      {"precision.compute=bfloat16", "did you mean \"bf16\"?"},
      {"data.train=[{path=\"a\", weight=0}]", "data.train[0].weight = 0 is out of range: above 0"},
      {"data.train=[{path=\"a\", weight=\"x\"}]", "data.train[0].weight: expected number, got string"},
      {"data.train=[{path=1, weight=1}]", "data.train[0].path: expected a path"},
      {"data.validation=[{name=\"a/b\", path=\"x\"}]", "data.validation[0].name: expected a name of at most 64 bytes"},
      {"data.validation=[{name=1, path=\"x\"}]", "data.validation[0].name: expected a name"},
      {"data.validation=[{name=\"a\", path=\"x\"}, \"y\"]", "data.validation: either every set has a name, or none"},
      {"data.validation=[{name=\"a\", path=\"x\"}, {name=\"a\", path=\"y\"}]", "two sets have the name \"a\""},
      {"run.device=gpu", "run.device = \"gpu\" is not one of \"auto\", \"cpu\", \"cuda\""},
  };
  for (const Case& c : cases) {
    INFO(c.option);
    const std::string error = set_error(c.option);
    INFO(error);
    CHECK(contains(error, c.expected));
    CHECK(contains(error, "--set " + c.option + ": error: "));
    CHECK(lines(error) == 1);
  }
  CHECK(contains(parse_error("[model]\nlayers = 99999999999999999999\n"), "f.toml:2:"));
}

TEST_CASE("numbers that become 0, 1 or infinity where they are used are refused", "[config][fault-5]") {
  const std::pair<const char*, const char*> cases[] = {
      {"optimizer.epsilon=1e-50", "optimizer.epsilon = 1e-50 is 0 in fp32, whose smallest number above 0 is"},
      {"optimizer.epsilon=1e-40", "optimizer.epsilon = 1e-40 is 0 in fp32"},  // less than normal: on some processors
      {"optimizer.betas=[0.9999999999999999, 0.999]",
       "optimizer.betas[0] = 0.9999999999999999 is 1 in fp32, whose largest number below is 0.99999994"},
      {"optimizer.betas=[0.9, 1e-60]", "optimizer.betas[1] = 1e-60 is 0 in fp32"},
      {"learning_rate.peak=1e39",
       "learning_rate.peak = 1e+39 is infinity in fp32, whose largest number is 3.4028235e+38"},
      {"learning_rate.peak=1e-46", "learning_rate.peak = 1e-46 is 0 in fp32"},
      {"learning_rate.minimum=1e-46", "learning_rate.minimum = 1e-46 is 0 in fp32"},
      {"optimizer.weight_decay=1e39", "optimizer.weight_decay = 1e+39 is infinity in fp32"},
      {"optimizer.weight_decay_end=1e39", "optimizer.weight_decay_end = 1e+39 is infinity in fp32"},
      {"optimizer.momentum=0.99999999", "optimizer.momentum = 0.99999999 is 1 in fp32"},
      {"optimizer.clip_grad_norm=1e-50", "optimizer.clip_grad_norm = 1e-50 is 0 in fp32"},
      {"optimizer.clip_grad_norm=1e39", "optimizer.clip_grad_norm = 1e+39 is infinity in fp32"},
      {"model.norm_epsilon=1e-50", "model.norm_epsilon = 1e-50 is 0 in fp32"},
      {"model.init_std=1e200", "model.init_std = 1e+200 is infinity in fp32"},
      {"model.rotary_base=1.000000001", "model.rotary_base = 1.000000001 is 1 in fp32, whose smallest number above is"},
      {"model.hidden_dropout=0.999999", "model.hidden_dropout = 0.999999 is 1 in the steps of 1/65536 of dropout"},
      {"model.attention_dropout=1e-6", "model.attention_dropout = 1e-06 is 0 in the steps of 1/65536 of dropout"},
      {"precision.loss_scale=1e-50", "precision.loss_scale = 1e-50 is 0 in fp32"},
      {"loss.alpha=1e-50", "loss.alpha = 1e-50 is 0 in fp32"},
  };
  for (const auto& [setting, message] : cases) {
    CAPTURE(setting);
    const std::string error = set_error(setting);
    INFO(error);
    CHECK(contains(error, message));
  }
  const Config kept =
      parse_small({"optimizer.epsilon=1e-37", "optimizer.betas=[0, 0.99999994]", "optimizer.weight_decay=0",
                   "optimizer.clip_grad_norm=0", "model.hidden_dropout=0.99998", "learning_rate.peak=3e38"});
  CHECK(kept.optimizer.epsilon == 1e-37);
  CHECK(kept.model.hidden_dropout == 0.99998);
}

TEST_CASE("all errors of a file and its options come at once, in order", "[config][fault-3]") {
  const std::string error = error_of([] {
    parse_config_text(
        "[train]\nsteps = \"x\"\n[model]\nlayres = 1\nhidden_size = 50\nattention_heads = 12\n"
        "sequence_length = 0\nactivation = \"x\"\n[data]\ntrain = \"d\"\n",
        "f.toml", {"run.log_every=0", "a.b=1"});
  });
  INFO(error);
  std::vector<std::string> found;
  for (std::size_t at = 0; at < error.size();) {
    const auto end = std::min(error.find('\n', at), error.size());
    found.push_back(error.substr(at, end - at));
    at = end + 1;
  }
  REQUIRE(found.size() == 8);
  CHECK(contains(found[0], "f.toml:2:1: error: train.steps: expected integer"));
  CHECK(contains(found[1], "f.toml:4:1: error: unknown key 'model.layres'"));
  CHECK(contains(found[2], "f.toml:6:1: error: model.hidden_size = 50 is not divisible by model.attention_heads = 12"));
  CHECK(contains(found[3], "f.toml:7:1: error: model.sequence_length = 0"));
  CHECK(contains(found[4], "f.toml:8:1: error: model.activation"));
  CHECK(contains(found[5], "--set run.log_every=0"));
  CHECK(contains(found[6], "--set a.b=1: error: unknown key 'a.b'"));
  CHECK(contains(found[7], "f.toml: error: train.global_batch_size is not set"));
}

TEST_CASE("sets of data without weights have equal ones", "[config]") {
  const Config c = parse_small({"data.train=[\"a\", {path = \"b\"}, {path = \"c\", weight = 2}]"});
  REQUIRE(c.data.train.parts.size() == 3);
  CHECK(c.data.train.parts[0] == BlendPart{"a", 1});
  CHECK(c.data.train.parts[1] == BlendPart{"b", 1});
  CHECK(c.data.train.parts[2] == BlendPart{"c", 2});
  CHECK(parse_small({"data.train=[\"a\"]"}).data.train == Blend("a"));
}

TEST_CASE("a refused file tells of its ranks and data as well", "[config]") {
  const auto further = [](const Config& config) {
    std::vector<Violation> problems = check_with_ranks(config, 2);
    problems.push_back({{"data.train"}, "data/x: not found", ""});
    return problems;
  };
  const auto refused = [&](const std::vector<std::string>& options) {
    return error_of([&] { parse_config_text(small_file(), "f.toml", options, nullptr, further); });
  };
  const std::string all = refused({"model.hidden_size=65", "train.global_batch_size=7"});
  INFO(all);
  CHECK(lines(all) == 3);
  CHECK(contains(all, "f.toml:11:1: error: data/x: not found"));
  CHECK(contains(all, "--set model.hidden_size=65: error: model.hidden_size = 65 is not divisible"));
  CHECK(contains(all, "--set train.global_batch_size=7: error: train.global_batch_size = 7 is not a multiple of"));
  // Nothing about a key whose value is unknown, and no further checks of what is in order.
  CHECK(lines(refused({"model.hidden_size=65", "train.micro_batch_size=x", "train.global_batch_size=7"})) == 3);
  CHECK(refused({"train.global_batch_size=7"}).empty());
}
