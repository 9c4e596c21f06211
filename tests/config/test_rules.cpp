// Rules between keys: layouts that do not divide, choices that exclude each other.
#include "config/rules/rules.h"
#include "config/schema/schema.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

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
      {{"model.norm_position=post"},
       1,
       "model.norm_position = \"post\" belongs to model.family = \"bert\", not \"gpt\""},
      {{"model.family=bert", "model.position_embedding=alibi"},
       1,
       "model.position_embedding = \"alibi\" belongs to model.family = \"gpt\", not \"bert\""},
      {{"model.family=bert", "model.attention_window=3"},
       1,
       "model.attention_window belongs to model.family = \"gpt\", not \"bert\""},
      {{"model.family=bert", "model.activation=swiglu"},
       1,
       "activation = \"swiglu\" is gated, and the head has no gate"},
      {{"model.family=bert", "model.norm_position=post", "model.residual=parallel"},
       1,
       "norm_position = \"post\" normalizes after each part in turn, and residual = \"parallel\" has both at once"},
      {{"model.family=bert", "train.curriculum={schedule=\"fixed_linear\", start=8, steps=5}"},
       1,
       "train.curriculum belongs to model.family = \"gpt\", not \"bert\""},
      {{"model.family=bert", "loss.name=key_tokens", "loss.token_ids=[1]"},
       1,
       "loss.name belongs to model.family = \"gpt\", not \"bert\""},
      {{"model.family=bert", "data.eod_mask_loss=true"}, 1, "data.eod_mask_loss belongs to model.family = \"gpt\""},
      {{"model.family=bert", "data.split_by=tokens"},
       1,
       "data.split_by = \"tokens\" belongs to model.family = \"gpt\""},
      {{"model.family=bert", "model.sequence_length=4"}, 1, "too short for [CLS] A [SEP] B [SEP]; take 5 or more"},
      {{"run.trace_events=9"}, 1, "run.trace_events = 9 has no effect without run.trace_steps"},
      {{"run.trace_steps=[3]"}, 1, "run.trace_steps has 1 number; it is [first, last]"},
      {{"run.trace_steps=[1, 2, 3]"}, 1, "run.trace_steps has 3 numbers"},
      {{"run.trace_steps=[5, 4]"}, 1, "run.trace_steps = [5, 4]: the last step is before the first"},
      {{"run.trace_steps=[99, 101]"}, 1, "run.trace_steps = [99, 101]: the run ends with step 100 = train.steps"},
      {{"model.decoder_layers=2"}, 1, "model.decoder_layers belongs to model.family = \"t5\", not \"gpt\""},
      {{"model.position_embedding=relative"}, 1, "\"relative\" belongs to model.family = \"t5\", not \"gpt\""},
      {{"model.attention_scale=none"},
       1,
       "model.attention_scale = \"none\" belongs to model.family = \"t5\", not \"gpt\""},
      {{"model.relative_buckets=16"},
       1,
       "model.relative_buckets belongs to model.position_embedding = \"relative\", not \"learned\""},
      {{"model.family=t5", "parallel.split_stage=1"}, 1, "the first layer of the decoder is on stage 0"},
      {{"model.family=t5", "model.residual=parallel"},
       1,
       "model.residual belongs to model.family = \"gpt\" or \"bert\", not \"t5\""},
      {{"model.family=t5", "model.position_embedding=rope"},
       1,
       "model.position_embedding = \"rope\" belongs to model.family = \"gpt\" or \"bert\", not \"t5\""},
      {{"model.family=t5", "model.position_embedding=relative", "model.relative_buckets=10"}, 1, "not a multiple of 4"},
      {{"model.family=t5", "model.position_embedding=relative", "model.relative_max_distance=16"},
       1,
       "is not above half of model.relative_buckets = 32"},
      {{"model.family=t5", "model.decoder_sequence_length=2"}, 1, "too short for a sentinel and a token"},
      {{"model.family=t5", "parallel.pipeline=5"}, 5, "model.layers + model.decoder_layers = "},
      {{"data.mask_probability=0.2"}, 1, "belongs to model.family = \"bert\" or \"t5\", not \"gpt\""},
      {{"data.short_probability=0"}, 1, "belongs to model.family = \"bert\" or \"t5\", not \"gpt\""},
      {{"model.family=bert", "task.name=classification", "task.labels=2", "task.extra_ids=3"},
       1,
       "task.extra_ids belongs to task.tokenizer = \"bert-uncased\", \"bert-cased\", \"sentencepiece\" or \"unigram\", "
       "which is not set"},
      {{"task.name=instructions", "task.tokenizer=byte", "task.extra_ids=3"},
       1,
       "\"sentencepiece\" or \"unigram\", not \"byte\""},
      {{"task.extra_ids=3"}, 1, "\"sentencepiece\" or \"unigram\", which is not set"},
      {{"model.family=bert", "evaluation.tasks=[{task=\"lambada\", data=\"d\"}]"},
       1,
       "evaluation.tasks belongs to model.family = \"gpt\", not \"bert\""},
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
       "model.rotary_fraction belongs to model.position_embedding = \"rope\", not \"alibi\""},
      {{"moe.experts=4", "moe.top_k=1"}, 1, "give moe.renormalize = false"},
      {{"moe.experts=4", "parallel.context=2"}, 2, "experts do not know parts of samples yet"},
      {{"moe.top_k=1"}, 1, "[moe] has keys, but moe.experts is not set"},
      {{"parallel.expert=2"}, 2, "parallel.expert = 2 divides experts among ranks, but moe.experts is not set"},
      {{"moe.experts=4", "moe.top_k=5"}, 1, "moe.top_k = 5 is above moe.experts = 4"},
      {{"moe.experts=6", "parallel.expert=4"},
       4,
       "moe.experts = 6 is not divisible by parallel.expert = 4; possible: 1, 2, 3, 6"},
      {{"moe.experts=4", "moe.ffn_hidden_size=30", "parallel.tensor=4"},
       4,
       "moe.ffn_hidden_size = 30 is not divisible"},
      {{"moe.experts=4", "parallel.expert=2", "parallel.tensor=2"}, 4, "give parallel.sequence_parallel = true"},
      {{"moe.experts=4", "moe.layers=[0, 12]"}, 1, "moe.layers names layer 12, but the last one is 11"},
      {{"moe.experts=4", "moe.layers=[3, 3]"}, 1, "moe.layers names layer 3 twice"},
      {{"moe.experts=4", "moe.residual=true", "moe.shared_experts=2"},
       1,
       "moe.residual = true with moe.shared_experts = 2: both are a dense part that all tokens go through"},
      {{"moe.experts=4", "moe.shared_gate=true"}, 1, "moe.shared_gate = true needs moe.shared_experts"},
      {{"moe.experts=4", "moe.jitter=1"}, 1, "moe.jitter = 1"},
      {{"moe.experts=4", "moe.shared_experts=1000", "moe.ffn_hidden_size=16778"},
       1,
       "moe.shared_experts × moe.ffn_hidden_size = 1000 × 16778 is more than 2^24 channels"},
      {{"moe.experts=4", "moe.buffer=2"}, 1, "moe.buffer belongs to moe.drop = \"none\", not \"position\""},
      {{"moe.experts=4", "moe.drop=none", "moe.capacity_factor=2"},
       1,
       "moe.capacity_factor belongs to moe.drop = \"position\" or \"random\", not \"none\""},
      {{"moe.experts=4", "moe.drop=none", "moe.evaluation_capacity_factor=2"},
       1,
       "moe.evaluation_capacity_factor has no effect with moe.drop"},
      {{"moe.experts=4", "moe.drop=none", "moe.minimum_capacity=1"},
       1,
       "moe.minimum_capacity belongs to moe.drop = \"position\" or \"random\", not \"none\""},
      {{"moe.experts=4", "moe.every=13"}, 1, "moe.every = 13 leaves none of the model's 12 layers with experts"},
      {{"model.rotary_base=500000"}, 1, "model.rotary_base belongs to model.position_embedding = \"rope\""},
      {{"model.rotary_scaling={type=\"linear\", factor=2}"},
       1,
       "model.rotary_scaling belongs to model.position_embedding = \"rope\""},
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
      {{"recompute.layers=2"}, 1, "recompute.layers belongs to recompute.mode = \"full\", not \"none\""},
      {{"recompute.mode=selective", "recompute.layers=1"},
       1,
       "recompute.layers belongs to recompute.mode = \"full\", not \"selective\""},
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
      {{"optimizer.momentum=0.8"},
       1,
       "optimizer.momentum belongs to optimizer.name = \"sgd\" or \"muon\", not \"adamw\""},
      {{"optimizer.nesterov=false"}, 1, "optimizer.nesterov belongs to optimizer.name = \"muon\", not \"adamw\""},
      {{"optimizer.name=sgd", "optimizer.muon_scale=match_adam_rms"},
       1,
       "optimizer.muon_scale belongs to optimizer.name = \"muon\", not \"sgd\""},
      {{"optimizer.adamw_learning_rate_factor=0.1"},
       1,
       "optimizer.adamw_learning_rate_factor belongs to optimizer.name = \"muon\", not \"adamw\""},
      {{"optimizer.name=sgd", "optimizer.betas=[0.8, 0.9]"},
       1,
       "optimizer.betas belongs to optimizer.name = \"adamw\" or \"muon\", not \"sgd\""},
      {{"optimizer.name=sgd", "optimizer.epsilon=1e-6"},
       1,
       "optimizer.epsilon belongs to optimizer.name = \"adamw\" or \"muon\""},
      {{"optimizer.weight_decay_end=0.2"},
       1,
       "optimizer.weight_decay_end = 0.2 belongs to optimizer.weight_decay_schedule = \"linear\""},
      {{"optimizer.weight_decay_schedule=cosine", "optimizer.weight_decay=0.3"},
       1,
       "optimizer.weight_decay_schedule = \"cosine\" leads from weight_decay = 0.3 to a weight_decay_end that is not "
       "given; add optimizer.weight_decay_end"},
      {{"data.order_samples=5"},
       1,
       "data.order_samples belongs to data.order = \"megatron\" or \"megatron_core\", not \"epoch\""},
      {{"data.order=megatron_core", "data.split_by=tokens"},
       1,
       "data.split_by = \"tokens\" belongs to data.order = \"epoch\", not \"megatron_core\""},
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
      {{"parallel.expert=2", "moe.experts=4"},
       1,
       "the data size is 1 rank / (tensor 1 × pipeline 1) = 1, which is not divisible by parallel.expert = 2"},
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
      {{"loss.token_ids=[5]"}, 1, "belongs to loss.name = \"key_tokens\", not \"language_model\""},
      {{"loss.alpha=2"}, 1, "belongs to loss.name = \"key_tokens\", not \"language_model\""},
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

TEST_CASE("update rules: the keys of a row need one of its rules", "[config]") {
  for (const UpdateRuleFacts& row : kUpdateRules) {
    for (const std::string_view name : row.keys) {
      CAPTURE(row.name, name);
      const Key* const key = find_key("optimizer", name);
      REQUIRE(key != nullptr);
      REQUIRE(key->constraint.needs.size() == 1);
      CHECK(key->constraint.needs.front().key == "optimizer.name");
      CHECK(key->constraint.needs.front().values == update_rules_with(name));
    }
  }
  const OptimizerConfig muon =
      resolved({"optimizer.name=muon", "optimizer.betas=[0.8, 0.9]", "optimizer.epsilon=1e-6",
                "optimizer.momentum=0.95", "optimizer.nesterov=false", "optimizer.muon_scale=match_adam_rms",
                "optimizer.adamw_learning_rate_factor=0.1", "optimizer.distributed=true"},
               1)
          .optimizer;
  CHECK(muon.adamw_learning_rate_factor == 0.1);
  CHECK(kind_of(kMuonScales, muon.muon_scale) == MuonScale::match_adam_rms);
  // The other keys of the table hold for all of them.
  CHECK(
      resolved({"optimizer.name=sgd", "optimizer.momentum=0.8", "optimizer.weight_decay=0.1"}, 1).optimizer.momentum ==
      0.8);
}
