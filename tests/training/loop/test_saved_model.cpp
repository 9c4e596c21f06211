// A checkpoint's model without its run: what only the run has said must refuse no text, no evaluation and no other cut.
#include "config/parse/parse.h"
#include "config/schema/print.h"
#include "inference/decoding/forward_passes.h"
#include "inference/decoding/inference_model.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/open_checkpoint.h"
#include "training/step/saved_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Settings of runs that speak of more than the model, with the layouts that these need.
const std::vector<std::string> kRuns[] = {
    {"checkpoint.keep_best=true", "train.evaluate_every=1"},
    {"checkpoint.every_minutes=0", "run.max_minutes=60"},
    {"run.trace_steps=[2, 2]"},
    {"optimizer.scaling=mup", "model.base_hidden_size=4"},
    {"optimizer.name=sgd", R"(optimizer.groups=[{roles = ["norm"], momentum = 0.5}])"},
    {"optimizer.name=muon", "optimizer.moments_dtype=bf16"},
    {"optimizer.weight_decay_schedule=cosine", "optimizer.weight_decay_end=0.2"},
    {"optimizer.share=weights", "optimizer.share_within=2", "train.global_batch_size=4", "parallel.data=4"},
    {"train.batch_ramp_up={start = 2, increment = 2, samples = 4}", "train.global_batch_size=4",
     "learning_rate.decay_samples=8"},
    {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=2, multiple=4}"},
    {"learning_rate.decay=wsd", "learning_rate.wsd_decay_steps=1"},
    {"loss.name=key_tokens", "loss.token_ids=[1, 2]"},
    {"recompute.mode=selective", "recompute.parts=[\"norms\"]"},
    {"precision.compute=fp16", "precision.loss_scale=64"},
    {"precision.compute=fp16", "precision.initial_loss_scale=65536"},
    {"data.reset_attention_mask=true", "data.reset_position_ids=true", "data.eod_mask_loss=true"},
    {"data.order=megatron"},
    {"parallel.schedule=interleaved", "parallel.virtual_stages=2", "train.global_batch_size=4", "parallel.pipeline=2"},
    {"parallel.context_exchange=ring", "model.attention_dropout=0", "parallel.context=2"},
    {"parallel.sequence_parallel=true", "parallel.tensor=2"},
};

}  // namespace

TEST_CASE("a saved model needs nothing that only its run had", "[train]") {
  const ShardFolder folder;
  const std::string corpus = make_corpus(folder);
  for (std::size_t i = 0; i < std::size(kRuns); ++i) {
    std::vector<std::string> settings = kRuns[i];
    settings.push_back("train.steps=2");
    CAPTURE(settings);
    Config tiny = tiny_config();
    tiny.data.train = corpus;
    tiny.run.directory = folder.file(std::to_string(i));
    Config config = parse_config_text(print_config(tiny), "tiny", settings);
    if (config.parallel.data == 0) config.parallel.data = 1;
    for (const std::string& told : run_loop(config).told) REQUIRE(told.empty());
    const CheckpointReader saved = open_alone(config.run.directory + "/checkpoints/step_00000002");
    const Config alone = config_for_inference(saved);
    CHECK(alone.model.layers == config.model.layers);
    CHECK(alone.model.base_hidden_size == config.model.base_hidden_size);
    for (const char* precision : {"fp32", "bf16", "checkpoint"}) {
      for (const ScoringLayout& layout : {ScoringLayout{}, {.ranks = 8, .tensor = 2, .pipeline = 2}}) {
        ScoringLayout there = layout;
        there.precision = precision;
        CHECK(config_for_decoding(saved, there).model == alone.model);
      }
    }
    for (const GridShape& shape : {GridShape{}, {.tensor = 2, .data = 2, .pipeline = 2}}) {
      const Config cut = config_for_layout(saved, shape, 1);
      CHECK(cut.model == alone.model);
      CHECK(cut.optimizer.name == config.optimizer.name);
      CHECK(saved_layout(cut, 0).size() > 0);
    }
  }
}
