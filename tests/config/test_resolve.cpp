#include <cmath>

#include <fmt/format.h>

#include "config/print.h"
#include "config/rules.h"
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
  CHECK(layers_of_stage(c, 1) == 4);
  CHECK(layers_of_stage(resolved({"parallel.pipeline=2", "parallel.layers_per_stage=[5, 7]"}, 2), 1) == 7);
  // Chunks in the order of the model; and any number of micro-batches.
  const std::vector<std::string> chunks = {"parallel.pipeline=2", "parallel.schedule=interleaved",
                                           "parallel.virtual_stages=2", "parallel.layers_per_stage=[1, 2, 4, 5]",
                                           "train.global_batch_size=7"};
  CHECK(layers_of_stage(resolved(chunks, 2), 0) == 1 + 4);
  CHECK(layers_of_stage(resolved(chunks, 2), 1) == 2 + 5);
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

TEST_CASE("rules between keys: the arithmetic and what would work", "[config][fault-4]") {
  struct Case {
    std::vector<std::string> options;
    int ranks;
    std::string expected;
  };
  const Case cases[] = {
      {{"parallel.tensor=8", "model.hidden_size=96"},
       8,
       "model.attention_heads = 12 is not divisible by parallel.tensor = 8; possible: 1, 2, 3, 4, 6, 12"},
      {{"model.attention_heads=5"},
       1,
       "model.hidden_size = 48 is not divisible by model.attention_heads = 5; possible heads: 1, 2, 3, 4, 6, 8"},
      {{"model.attention_heads=5"}, 1, "24, 48; or give model.head_size"},
      {{"model.head_size=16777216"},
       1,
       "model.attention_heads × model.head_size = 12 × 16777216 is more than 2^24 channels"},
      {{"model.head_size=7", "model.position_embedding=rope"},
       1,
       "model.rotary_fraction = 1 of the head size 7 is 7; it must be an even number of channels"},
      {{"model.query_groups=5"}, 1, "model.attention_heads = 12 is not divisible by model.query_groups = 5"},
      {{"model.query_groups=2", "parallel.tensor=3", "model.vocab_multiple=384"},
       3,
       "model.query_groups = 2 and parallel.tensor = 3: neither divides the other"},
      {{"model.ffn_hidden_size=50", "parallel.tensor=4"},
       4,
       "model.ffn_hidden_size = 50 is not divisible by parallel.tensor = 4; possible: 1, 2, 5, 10, 25, 50"},
      {{"model.vocab_multiple=1", "parallel.tensor=3"},
       3,
       "vocabulary 100 padded to a multiple of model.vocab_multiple = 1 is 100, which is not divisible by "
       "parallel.tensor = 3; use a vocab_multiple like 3"},
      {{"parallel.tensor=3", "model.vocab_multiple=384", "parallel.sequence_parallel=true"},
       3,
       "sequence_parallel: model.sequence_length = 16 is not divisible by parallel.tensor = 3; possible: 1, 2, 4, 8, "
       "16"},
      {{"parallel.context=3"},
       3,
       "model.sequence_length = 16 is not divisible by 2 × parallel.context = 6; nearest lengths: 12, 18"},
      {{"model.position_embedding=rope", "model.hidden_size=36"},
       1,
       "model.rotary_fraction = 1 of the head size 36 / 12 = 3 is 3; it must be an even number of channels"},
      {{"model.position_embedding=rope", "model.rotary_fraction=0.25"},
       1,
       "model.rotary_fraction = 0.25 of the head size 48 / 12 = 4 is 1; it must be an even number of channels"},
      {{"model.position_embedding=alibi", "model.rotary_fraction=0.5"},
       1,
       "model.rotary_fraction has a meaning with position_embedding = \"rope\" only, not \"alibi\""},
      {{"model.rotary_base=500000"}, 1, "model.rotary_base has a meaning with position_embedding = \"rope\" only"},
      {{"model.rotary_scaling={type=\"linear\", factor=2}"},
       1,
       "model.rotary_scaling has a meaning with position_embedding = \"rope\" only"},
      {{"model.position_embedding=rope", "model.rotary_scaling={type=\"linear\", factor=0.5}"},
       1,
       "model.rotary_scaling: factor = 0.5 is below 1"},
      {{"model.position_embedding=rope", "model.rotary_scaling={type=\"llama3\", factor=8, low_frequency_factor=4}"},
       1,
       "model.rotary_scaling: low_frequency_factor = 4 is not below high_frequency_factor = 4"},
      {{"model.max_position_embeddings=8"},
       1,
       "model.max_position_embeddings = 8 is smaller than model.sequence_length = 16"},
      {{"parallel.pipeline=5"},
       5,
       "model.layers = 12 is not divisible by parallel.pipeline = 5; possible: 1, 2, 3, 4, 6, 12; or give "
       "parallel.layers_per_stage, such as [2, 3, 3, 2, 2]"},
      {{"model.layers=2", "parallel.pipeline=4"},
       4,
       "model.layers = 2 is not divisible by parallel.pipeline = 4; possible: 1, 2"},
      {{"parallel.pipeline=2", "parallel.layers_per_stage=[5, 6]"},
       2,
       "parallel.layers_per_stage sums to 5 + 6 = 11, model.layers = 12; 1 too few"},
      {{"parallel.pipeline=2", "parallel.layers_per_stage=[4, 4, 4]"},
       2,
       "parallel.layers_per_stage has 3 numbers, parallel.pipeline = 2"},
      {{"parallel.virtual_stages=2", "parallel.pipeline=2"}, 2, "needs schedule = \"interleaved\", not \"1f1b\""},
      {{"parallel.schedule=interleaved", "parallel.pipeline=2"}, 2, "needs parallel.virtual_stages of at least 2"},
      {{"parallel.schedule=interleaved", "parallel.virtual_stages=2"}, 1, "needs parallel.pipeline of at least 2"},
      {{"parallel.schedule=interleaved", "parallel.pipeline=2", "parallel.virtual_stages=4"},
       2,
       "model.layers = 12 is not divisible by parallel.pipeline × parallel.virtual_stages = 2 × 4 = 8"},
      {{"parallel.schedule=interleaved", "parallel.pipeline=2", "parallel.virtual_stages=2",
        "parallel.layers_per_stage=[6, 6]"},
       2,
       "parallel.layers_per_stage has 2 numbers, parallel.pipeline × parallel.virtual_stages = 2 × 2; give one number "
       "a chunk in the order of the model"},
      {{"parallel.schedule=zero_bubble"}, 1, "schedule = \"zero_bubble\" needs parallel.pipeline of at least 2"},
      {{"parallel.schedule=zero_bubble", "parallel.pipeline=2", "recompute.mode=full"},
       2,
       "nothing is left to defer; take recompute.layers below 6"},
      {{"parallel.schedule=zero_bubble", "parallel.pipeline=2", "recompute.mode=full", "recompute.layers=7",
        "parallel.layers_per_stage=[5, 7]"},
       2,
       "nothing is left to defer; take recompute.layers below 7"},
      {{"recompute.layers=2"}, 1, "recompute.layers = 2 has a meaning with mode = \"full\" only"},
      {{"recompute.mode=selective", "recompute.layers=1"},
       1,
       "recompute.layers = 1 has a meaning with mode = \"full\" only, not \"selective\""},
      {{"train.batch_ramp_up={start=8, increment=2, samples=10}"},
       1,
       "train.batch_ramp_up.start = 8 is not smaller than train.global_batch_size = 8"},
      {{"train.batch_ramp_up={start=2, increment=4, samples=10}"}, 1, "8 - 2 = 6 is not divisible by increment = 4"},
      {{"train.batch_ramp_up={start=1, increment=1, samples=10}"},
       2,
       "start = 1 and increment = 1 are not both multiples of micro_batch_size 1 × data 2 = 2"},
      {{"learning_rate.minimum=1"}, 1, "learning_rate.minimum = 1 is above learning_rate.peak = 0.0001"},
      {{"learning_rate.warmup_steps=1", "learning_rate.warmup_samples=1"},
       1,
       "at most one of learning_rate.warmup_steps"},
      {{"learning_rate.decay_steps=1", "learning_rate.decay_samples=1"}, 1, "at most one of learning_rate.decay_steps"},
      {{"learning_rate.warmup_steps=100", "learning_rate.decay_steps=100"},
       1,
       "the warm-up of 100 steps = 800 samples is not shorter than the cosine decay's 800 samples"},
      {{"checkpoint.load=a", "checkpoint.initialize_from=b"}, 1, "exclude each other"},
      {{"data.order=megatron", "train.seed=4294967296"}, 1, "2^32 - 1"},
      {{"learning_rate.decay=wsd"}, 1, "takes exactly one of learning_rate.wsd_decay_steps, wsd_decay_samples"},
      {{"learning_rate.decay=wsd", "learning_rate.wsd_decay_steps=101", "learning_rate.decay_steps=100"},
       1,
       "the warm-up of 0 samples and the wsd decay of 101 steps do not fit into the decay length of 800 samples = 100 "
       "steps"},
      {{"learning_rate.decay=wsd", "learning_rate.wsd_decay_samples=701", "learning_rate.warmup_samples=100",
        "learning_rate.decay_samples=800"},
       1,
       "the warm-up of 100 samples and the wsd decay of 701 samples do not fit"},
      {{"learning_rate.wsd_decay_steps=5"},
       1,
       "learning_rate.wsd_decay_steps belongs to learning_rate.decay = \"wsd\", not \"cosine\""},
      {{"optimizer.momentum=0.8"}, 1, "optimizer.momentum = 0.8 belongs to optimizer.name = \"sgd\""},
      {{"optimizer.name=sgd", "optimizer.betas=[0.8, 0.9]"},
       1,
       "optimizer.betas belongs to optimizer.name = \"adamw\""},
      {{"optimizer.name=sgd", "optimizer.epsilon=1e-6"}, 1, "optimizer.epsilon = 1e-06 belongs to"},
      {{"optimizer.weight_decay_end=0.2"},
       1,
       "optimizer.weight_decay_end = 0.2 belongs to optimizer.weight_decay_schedule = \"linear\""},
      {{"optimizer.weight_decay_schedule=cosine", "optimizer.weight_decay=0.3"},
       1,
       "optimizer.weight_decay_schedule = \"cosine\" leads from weight_decay = 0.3 to a weight_decay_end that is not "
       "given; add optimizer.weight_decay_end"},
      {{"data.order_samples=5"}, 1, "data.order_samples = 5 belongs to data.order = \"megatron\""},
      {{"data.order=megatron_core", "data.split_by=tokens"},
       1,
       "data.split_by = \"tokens\" does not belong to data.order = \"megatron_core\""},
      {{"data.order=megatron_core", "train.seed=4294967296"}, 1, "data.order = \"megatron_core\", takes"},
      {{"data.split=1,x"}, 1, "data.split = \"1,x\" is not up to three numbers"},
      {{"data.split=0,1"}, 1, "data.split"},
      {{"data.split=1,-1"}, 1, "data.split"},
      {{"data.split=1,2,3,4"}, 1, "data.split"},
      {{"data.split=1,"}, 1, "data.split"},
      {{"data.split=\"\""}, 1, "data.split"},
      {{"parallel.tensor=4"},
       6,
       "6 ranks cannot hold whole replicas of tensor 4 × pipeline 1 = 4 ranks; start it with 4 or 8 ranks, or choose a "
       "product that divides 6: 1, 2, 3, 6"},
      {{"parallel.tensor=2"},
       1,
       "1 rank cannot hold whole replicas of tensor 2 × pipeline 1 = 2 ranks; start it with 2 ranks"},
      {{"parallel.data=1"}, 2, "× data 1 = 1 rank, but this job has 2; start it with 1 rank,"},
      {{"parallel.tensor=4", "parallel.pipeline=2"}, 4, "start it with 8 ranks"},
      {{"parallel.tensor=2", "parallel.data=2"},
       2,
       "tensor 2 × pipeline 1 × data 2 = 4 ranks, but this job has 2; start it with 4 ranks,"},
      {{"parallel.expert=2"},
       1,
       "the data size 1 / (tensor 1 × pipeline 1) = 1 is not divisible by parallel.expert = 2"},
      {{"precision.compute=fp16", "precision.minimum_loss_scale=8", "precision.initial_loss_scale=4"},
       1,
       "precision.minimum_loss_scale = 8 is above precision.initial_loss_scale = 4"},
      {{"precision.loss_scale_window=10"},
       1,
       "precision.loss_scale_window belongs to the dynamic loss scale, which precision.compute = \"fp32\" does not "
       "have; "
       "leave it out, or compute in \"fp16\""},
      {{"precision.compute=fp16", "precision.loss_scale=128", "precision.loss_scale_hysteresis=3"},
       1,
       "which precision.loss_scale = 128 does not have; leave it out, or leave loss_scale out"},
      {{"train.global_batch_size=50", "train.micro_batch_size=4"},
       2,
       "train.global_batch_size = 50 is not a multiple of micro_batch_size 4 × data 2 = 8; nearest: 48, 56"},
      {{"loss.name=key_tokens"}, 1, "loss.name = \"key_tokens\" needs loss.token_ids"},
      {{"loss.name=key_tokens", "loss.token_ids=[5, 7, 5]"}, 1, "loss.token_ids has 5 twice"},
      {{"loss.name=key_tokens", "loss.token_ids=[5, 100]"},
       1,
       "loss.token_ids has 100, and the vocabulary of 100 ends"},
      {{"loss.token_ids=[5]"}, 1, "belong to loss.name = \"key_tokens\", and loss.name is \"language_model\""},
      {{"loss.alpha=2"}, 1, "belong to loss.name = \"key_tokens\", and loss.name is \"language_model\""},
      {{"train.samples=7"}, 1, "the run has 7 samples (train.samples = 7), fewer than one batch of 8"},
      {{"train.tokens=100"}, 1, "train.tokens = 100 / sequence_length 16"},
      {{"train.epochs=0.001"}, 1, "the run has 1 samples (train.epochs = 0.001 × 1000 samples)"},
      {{"train.steps=1000000000000", "train.global_batch_size=1000000000"}, 1, "is more than 2^63 samples"},
      {{"model.vocab_size=99"}, 1, "model.vocab_size = 99 is smaller than the data's 100"},
      {{}, 0, "the number of ranks is 0"},
      {{}, -4, "the number of ranks is -4"},
  };
  for (const Case& c : cases) {
    INFO((c.options.empty() ? std::string() : c.options.front()));
    const std::string error = error_of([&] { resolved(c.options, c.ranks); });
    INFO(error);
    CHECK(contains(error, c.expected));
    CHECK(lines(error) == 1);
  }
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

TEST_CASE("all violations come at once, and a refused configuration is unchanged", "[config][fault-3]") {
  Config config = parse_small({"train.samples=7"});
  config.model.attention_heads = 7;
  config.parallel.pipeline = 5;
  config.learning_rate.minimum = 1;
  const Config before = config;
  const std::string error = error_of([&] { resolve(config, 4, &kData); });
  INFO(error);
  CHECK(contains(error, "model.attention_heads = 7"));
  CHECK(contains(error, "parallel.pipeline = 5"));
  CHECK(contains(error, "learning_rate.minimum"));
  CHECK(contains(error, "4 ranks cannot hold"));
  CHECK(lines(error) == 4);
  CHECK(config == before);
}

TEST_CASE("a constant or inverse square root learning rate may be all warm-up", "[config]") {
  CHECK(resolved({"learning_rate.warmup_steps=100", "learning_rate.decay=constant"}).learning_rate.warmup_samples ==
        800);
  CHECK(resolved({"learning_rate.warmup_steps=200", "learning_rate.decay=inverse_sqrt"}).learning_rate.warmup_samples ==
        1600);
}

TEST_CASE("resolving twice changes nothing", "[config]") {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {},
           {"train.epochs=3", "train.evaluate_every=epoch"},
           {"train.tokens=9999", "learning_rate.warmup_steps=3"},
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
  CHECK(files == 23);

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
  const std::int64_t h = large.model.hidden_size, stage_layers = layers_of_stage(large, 0);
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
