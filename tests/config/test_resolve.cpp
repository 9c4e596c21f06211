#include <cmath>

#include <fmt/format.h>

#include "config/rules/rules.h"
#include "config/schema/print.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config input(const std::string& name, int ranks, const std::vector<std::string>& overrides = {}) {
  Config config = parse_config((repository() / "inputs" / name).string(), overrides);
  resolve(config, ranks, nullptr);
  return config;
}

}  // namespace

TEST_CASE("derived values", "[config]") {
  const Config c = resolved({"parallel.tensor=2", "parallel.pipeline=3", "learning_rate.warmup_fraction=0.25"}, 12);
  CHECK(c.parallel.data == 2);
  CHECK(c.model.query_groups == 12);
  CHECK(c.model.ffn_hidden_size == 192);
  CHECK(resolved({"model.activation=relu"}, 1).model.ffn_hidden_size == 192);
  CHECK(resolved({"model.activation=swiglu"}, 1).model.ffn_hidden_size == 128);
  CHECK(resolved({"model.activation=geglu", "model.hidden_size=4092"}, 1).model.ffn_hidden_size == 10880);
  CHECK(resolved({"model.activation=geglu", "model.hidden_size=12"}, 1).model.ffn_hidden_size == 64);
  CHECK(c.model.max_position_embeddings == 16);
  CHECK(c.model.padded_vocab() == 128);
  CHECK(c.train.steps == 100);
  CHECK(c.learning_rate.decay_samples == 800);
  CHECK(c.learning_rate.warmup_samples == 200);
  CHECK(c.learning_rate.warmup_fraction == 0);
  CHECK(resolved({"parallel.pipeline=2", "parallel.layers_per_stage=[5, 7]"}, 2).parallel.layers_per_stage ==
        std::vector<std::int64_t>{5, 7});
  // Chunks in the order of the model; and any number of micro-batches.
  const std::vector<std::string> chunks = {"parallel.pipeline=2", "parallel.schedule=interleaved",
                                           "parallel.virtual_stages=2", "parallel.layers_per_stage=[1, 2, 4, 5]",
                                           "train.global_batch_size=7"};
  CHECK(resolved(chunks, 2).parallel.layers_per_stage == std::vector<std::int64_t>{1, 2, 4, 5});
}

TEST_CASE("the padded vocabulary is the file's choice, not the tensor size's", "[config]") {
  const std::pair<int, std::int64_t> multiples[] = {{128, 50304}, {256, 50432}, {512, 50688}, {1024, 51200}};
  for (const auto& [multiple, padded] : multiples) {
    ModelConfig model;
    model.vocab_size = 50257;
    model.vocab_multiple = multiple;
    CHECK(model.padded_vocab() == padded);
  }
  ModelConfig bert;
  bert.vocab_size = 30524;
  CHECK(bert.padded_vocab() == 30592);
  bert.vocab_size = 30624;
  CHECK(bert.padded_vocab() == 30720);
  CHECK(resolved({"parallel.tensor=4"}, 4).model.padded_vocab() == resolved({}, 1).model.padded_vocab());
  const DataFacts bytes{257, 1000};
  CHECK(resolved({"model.vocab_size=257"}, 1, &bytes).model.padded_vocab() == 384);
}

TEST_CASE("the sample count that Megatron's order is made for", "[config]") {
  const auto order_samples = [](std::vector<std::string> options) {
    options.push_back("data.order=megatron");
    return resolved(options, 1).data.order_samples;
  };
  CHECK(order_samples({}) == 800);
  CHECK(order_samples({"train.samples=90"}) == 90);  // the rest of a batch counts, though it is not trained
  CHECK(order_samples({"train.tokens=1650"}) == 103);
  CHECK(order_samples({"train.epochs=1.5"}) == 1500);
  CHECK(order_samples({"data.order_samples=5000"}) == 5000);
  CHECK(resolved({}, 1).data.order_samples == 0);
}

TEST_CASE("missing sizes and lengths", "[config]") {
  const std::string error = error_of([] { parse_config_text("", "f.toml"); });
  for (const char* key : {"model.layers", "model.hidden_size", "model.attention_heads", "model.sequence_length",
                          "train.global_batch_size", "data.train"}) {
    INFO(key);
    CHECK(contains(error, std::string("f.toml: error: ") + key + " is not set"));
  }
  CHECK(contains(error, "exactly one of train.steps, samples, tokens, epochs says how long to train; none is given"));
  CHECK(lines(error) == 7);
  CHECK(contains(error_of([] { parse_config_text(small_file() + "[train2]\n", "f.toml"); }), "did you mean 'train'?"));
  std::string both = small_file();
  both.insert(both.find("global"), "epochs = 2\n");
  CHECK(contains(
      error_of([&] { parse_config_text(both, "f.toml"); }),
      "f.toml:8:1: error: exactly one of train.steps, samples, tokens, epochs says how long to train; given are "
      "steps = 100, epochs = 2"));
  Config no_vocabulary = parse_small();
  no_vocabulary.model.vocab_size = 0;
  CHECK(contains(error_of([&] { resolve(no_vocabulary, 1, nullptr); }), "model.vocab_size is not set"));
  resolve(no_vocabulary, 1, &kData);
  CHECK(no_vocabulary.model.vocab_size == 100);
}

TEST_CASE("a constant or inverse square root learning rate may be all warm-up", "[config]") {
  CHECK(resolved({"learning_rate.warmup_steps=100", "learning_rate.decay=constant"}).learning_rate.warmup_samples ==
        800);
  CHECK(resolved({"learning_rate.warmup_steps=200", "learning_rate.decay=inverse_sqrt"}).learning_rate.warmup_samples ==
        1600);
}

TEST_CASE("optimizer.momentum: the default is the rule's, what a file says stays", "[config]") {
  struct Case {
    const char* name;
    double momentum;
  };
  for (const auto& [name, momentum] : {Case{"adamw", 0.9}, Case{"sgd", 0.9}, Case{"lion", 0.9}, Case{"muon", 0.95}}) {
    CAPTURE(name);
    const std::string rule = fmt::format("optimizer.name={}", name);
    CHECK_FALSE(parse_small({rule}).optimizer.momentum.has_value());
    CHECK(parse_small({rule}).optimizer.momentum_or_default() == momentum);
    const Config config = resolved({rule});
    CHECK(config.optimizer.momentum == momentum);
    CHECK_THAT(print_config(config), Contains(fmt::format("\nmomentum = {}\n", momentum)));
    // Resolved files of earlier versions have 0.9 with every rule.
    CHECK(resolved({rule, "optimizer.momentum=0.9"}).optimizer.momentum == 0.9);
    // A resolved file of Muon's whose rule is changed.
    CHECK(resolved({rule, "optimizer.momentum=0.95"}).optimizer.momentum == 0.95);
    CHECK(changed_keys(print_config(config), config).empty());
    CHECK(changed_keys(print_config(parse_small({rule})), parse_small({rule})).empty());
  }
  const std::string saved = print_config(resolved({"optimizer.name=muon", "optimizer.momentum=0.9"}));
  CHECK(changed_keys(saved, resolved({"optimizer.name=muon"})) ==
        std::vector<std::string>{"optimizer.momentum = 0.95 (was 0.9)"});
}

TEST_CASE("resolving twice changes nothing", "[config]") {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {},
           {"train.epochs=3", "train.evaluate_every=epoch"},
           {"train.tokens=9999", "learning_rate.warmup_steps=3"},
           {"optimizer.name=muon", "optimizer.groups=[{roles=[\"norm\"], name=\"sgd\"}]"},
           {"learning_rate.warmup_fraction=0.1", "learning_rate.decay_steps=70"},
           {"train.tokens=9999", "learning_rate.decay=wsd", "learning_rate.wsd_decay_samples=7",
            "train.curriculum={schedule=\"fixed_root\", start=8, steps=9}"},
           {"learning_rate.decay=wsd", "learning_rate.wsd_decay_steps=7", "optimizer.weight_decay_schedule=cosine",
            "optimizer.weight_decay_end=0"}}) {
    const Config once = resolved(options, 2);
    Config twice = once;
    resolve(twice, 2, &kData);
    CHECK(twice == once);
  }
}

TEST_CASE("every input file plans with suitable ranks", "[config]") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(repository() / "inputs")) {
    if (entry.path().extension() == ".toml") ++files;
  }
  CHECK(files == 34);

  const DataFacts bytes{257, 20000};
  Config demo = parse_config((repository() / "inputs/demo.toml").string(), {"train.steps=50", "parallel.tensor=4"});
  resolve(demo, 8, &bytes);
  CHECK(demo.parallel.data == 1);
  CHECK(demo.model.padded_vocab() == 384);
  CHECK(demo.train.steps == 50);
  demo = parse_config((repository() / "inputs/demo.toml").string());
  resolve(demo, 8, &bytes);
  CHECK(demo.parallel.data == 2);

  for (const std::string name :
       {"shakespeare_char", "wikitext_bpe", "tiny_llama", "finetune", "documents", "blend", "bf16", "layouts"}) {
    CAPTURE(name);
    Config config = parse_config((repository() / "inputs" / (name + ".toml")).string());
    resolve(config, 2, &bytes);
    CHECK(config.parallel.data == 2);
    CHECK(config.run.directory == "runs/gallery/" + name);
  }

  for (const int ranks : {1, 2, 4, 8}) CHECK(input("gpt2_124m.toml", ranks).parallel.data == ranks);
  for (const int ranks : {4, 8, 16}) CHECK(input("gpt2_345m.toml", ranks).parallel.data == ranks / 4);
}

TEST_CASE("the published runs: GPT-2 large on 4 ranks, GPT-3 175B on 1024", "[config]") {
  const Config large = input("gpt2_large.toml", 4);
  CHECK(large.model.padded_vocab() == 50432);
  CHECK(large.model.max_position_embeddings == 1024);
  const std::int64_t h = large.model.hidden_size, stage_layers = large.model.layers / large.parallel.pipeline;
  const std::int64_t t = large.parallel.tensor, vocabulary = large.model.padded_vocab() / t * h;
  const std::int64_t layer = 12 * h * h / t + 7 * h / t + 6 * h;
  CHECK(stage_layers * layer + vocabulary + 1024 * h == 210753280);
  CHECK(stage_layers * layer + vocabulary + 2 * h == 209445120);

  const Config gpt3 = input("gpt3_175b.toml", 1024);
  CHECK(gpt3.parallel.data == 8);
  CHECK(gpt3.model.padded_vocab() == 51200);
  CHECK(gpt3.train.steps == 111354);
  CHECK(gpt3.learning_rate.decay_samples == 126953125);
  CHECK(gpt3.learning_rate.warmup_samples == 183105);
  for (const int ranks : {128, 256, 512, 2048}) CHECK(input("gpt3_175b.toml", ranks).parallel.data == ranks / 128);
}

TEST_CASE("the ten models of the weak-scaling study, on the study's ranks", "[config]") {
  struct Row {
    const char* file;
    int ranks;
    std::int64_t data, micro_batches;
    double billions;
  };
  for (const auto& [file, ranks, data, micro_batches, billions] :
       {Row{"scaling_1.7b.toml", 32, 32, 1, 1.7}, Row{"scaling_3.6b.toml", 64, 32, 1, 3.6},
        Row{"scaling_7.5b.toml", 128, 32, 1, 7.5}, Row{"scaling_18b.toml", 256, 32, 4, 18.4},
        Row{"scaling_39b.toml", 512, 32, 12, 39.1}, Row{"scaling_76b.toml", 1024, 32, 28, 76.1},
        Row{"scaling_146b.toml", 1536, 24, 48, 145.6}, Row{"scaling_310b.toml", 1920, 15, 144, 310.1},
        Row{"scaling_530b.toml", 2520, 9, 280, 529.6}, Row{"scaling_1t.toml", 3072, 6, 512, 1008.0}}) {
    INFO(file);
    const Config c = input(file, ranks);
    CHECK(c.parallel.data == data);
    CHECK(c.train.global_batch_size == micro_batches * c.train.micro_batch_size * data);
    // The study's formula.
    const auto L = static_cast<double>(c.model.layers), h = static_cast<double>(c.model.hidden_size);
    const auto V = static_cast<double>(c.model.padded_vocab()), s = static_cast<double>(c.model.sequence_length);
    CHECK(12 * L * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * L * h)) / 1e9 == Approx(billions).margin(0.06));
  }
}
