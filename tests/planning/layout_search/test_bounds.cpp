// Bounds by which the search drops layouts without playing them: no played layout may be below them.
#include "planning/layout_search/bounds.h"
#include "planning/layout_search/search.h"
#include "support/catch.h"

using namespace megatron;

namespace {

Config dense_model() {
  Config config;
  ModelConfig& model = config.model;
  model.layers = 8;
  model.hidden_size = 256;
  model.attention_heads = 8;
  model.sequence_length = 128;
  model.vocab_size = 1024;
  config.data.train = "none";
  config.train.steps = 100;
  config.train.global_batch_size = 32;
  config.precision.compute = "bf16";
  config.run.device = "cuda";
  config.run.communication = "nccl";
  return config;
}

Config model_with_experts() {
  Config config = dense_model();
  config.model.moe.experts = 4;
  config.model.moe.top_k = 2;
  config.model.moe.ffn_hidden_size = 512;
  return config;
}

/// A model of eight layers. 4: some stages have no experts; 3: the model ends within a period.
Config experts_in_every(std::int64_t period) {
  Config config = model_with_experts();
  config.model.moe.every = period;
  return config;
}

Config experts_in_some_layers() {
  Config config = model_with_experts();
  config.model.moe.layers = {0, 5};
  return config;
}

Config encoder_decoder() {
  Config config = dense_model();
  config.model.family = "t5";
  config.model.layers = config.model.decoder_layers = 4;
  config.model.decoder_sequence_length = 32;
  return config;
}

/// Layouts of eight ranks.
std::vector<ParallelConfig> layouts() {
  std::vector<ParallelConfig> all;
  for (const std::int64_t tensor : {1, 2}) {
    for (const std::int64_t pipeline : {1, 2, 4, 8}) {
      if (tensor * pipeline > 8) continue;
      for (const ScheduleFacts& schedule : kSchedules) {
        if (pipeline == 1 && schedule.name != "1f1b") continue;
        ParallelConfig parallel;
        parallel.tensor = tensor;
        parallel.pipeline = pipeline;
        parallel.data = 8 / tensor / pipeline;
        parallel.schedule = schedule.name;
        if (schedule.chunks && pipeline == 8) continue;
        parallel.virtual_stages = schedule.chunks ? 2 : 1;
        parallel.sequence_parallel = tensor > 1 && pipeline > 1;
        all.push_back(parallel);
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("no layout takes less memory or time than its bounds") {
  const Config config = GENERATE(dense_model(), model_with_experts(), experts_in_every(2), experts_in_every(3),
                                 experts_in_every(4), experts_in_some_layers(), encoder_decoder());
  const MoeConfig& moe = config.model.moe;
  const bool repeats = moe.layers.empty() && !config.model.has_decoder() && config.model.layers % moe.every == 0;
  for (const double bandwidth : {1e9, 1e13}) {  // communication counts, or next to nothing
    Hardware hardware = read_hardware("a100-sxm");
    hardware.node.bandwidth = hardware.network.bandwidth = bandwidth;
    LayoutBounds bounds(hardware);
    for (const ParallelConfig& parallel : layouts()) {
      for (const auto& [micro_batch, recompute, share] : {std::tuple(1, "none", "none"),
                                                          {1, "full", "state"},
                                                          {1, "selective", "state"},
                                                          {4, "none", "state"},
                                                          {1, "none", "gradients"},
                                                          {1, "none", "weights"}}) {
        const bool splits = row_named(kSchedules, parallel.schedule).splits_backward;
        if (parallel.pipeline > 1 && std::string_view(share) == "weights") continue;
        if (splits && std::string_view(recompute) == "full") continue;  // nothing is left to delay
        if (splits && std::string_view(share) == "gradients") continue;
        CAPTURE(config.model.family, bandwidth, parallel.tensor, parallel.pipeline, parallel.schedule, micro_batch,
                recompute, share);
        Config one = config;
        one.parallel = parallel;
        if (config.model.moe.experts > 0) one.parallel.expert = std::min<std::int64_t>(parallel.data, micro_batch);
        if (one.parallel.expert > 1 && parallel.tensor > 1) one.parallel.sequence_parallel = true;
        one.train.micro_batch_size = micro_batch;
        one.recompute.mode = recompute;
        one.optimizer.share = share;
        resolve(one, 8, nullptr);
        const RecordedLayout played = record_layout(one, hardware.ranks_per_node);
        const double bytes = bounds.bytes(one), seconds = bounds.seconds(one);
        CHECK(bytes <= static_cast<double>(played.most_bytes()));
        CHECK(seconds <= step_time(played, hardware).seconds * (1 + 1e-9));
        CHECK((bytes > 0) == repeats);  // other models have only their time bounded
        CHECK(seconds > 0);
      }
    }
  }
}
