// The CUDA backend trains what the CPU backend trains: losses and gradient norms with dropout on, on one rank and on
// several that share the device, in every precision and of every family of models; twice the same bits; checkpoints of
// one resumed on the other.
#include <cmath>

#include "config/rules/resolve.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/small_corpus.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kSteps = 3;

struct Trace {
  std::vector<double> losses, norms;  ///< by step
  bool operator==(const Trace&) const = default;
};

Config config_of(const ShardFolder& folder, const std::string& precision) {
  Config config = tiny_config();
  config.model.layers = 2;
  config.precision.compute = precision;
  if (precision == "fp16") config.precision.initial_loss_scale = 1024;
  config.data.train = make_corpus(folder);
  config.train.steps = kSteps;
  config.train.micro_batch_size = 2;
  return config;
}

/// Trains on thread ranks, from a checkpoint if `from` names one, and leaves one of the last step if `to` names a run.
Trace train(const Config& config, const std::string& device, const std::string& from = "", const std::string& to = "") {
  const int ranks = static_cast<int>(config.parallel.tensor * config.parallel.pipeline * config.parallel.data);
  Trace trace;
  run_as_threads(ranks, [&](Communicator& world) {
    Config own = config;
    own.run.device = device;
    own.run.communication = "mpi";
    Datasets datasets(own);
    const DataFacts facts = datasets.facts();
    resolve(own, ranks, &facts);
    std::vector<std::string> warnings;
    own.run = choose_device(own.run, world, warnings);
    Compute compute = start_compute(own.run, own.precision.dtype(), world, "one host", world.rank());
    const ProcessGrid grid(world, grid_shape(own), compute.transport.get());
    Trainer trainer(own, grid, compute.backend, datasets);
    if (!from.empty()) trainer.resume(open_named_checkpoint(world, from, warnings));
    while (!trainer.finished()) {
      const StepResult result = trainer.train_step();
      if (world.rank() != 0) continue;
      trace.losses.push_back(result.loss);
      trace.norms.push_back(result.gradient_norm);
    }
    if (!to.empty()) trainer.save(to, nlohmann::json::object());
  });
  return trace;
}

/// Rotary positions, RMSNorm, a gate, groups of queries, normalised queries and keys, and no biases.
void make_llama(ModelConfig& model) {
  model.position_embedding = "rope";
  model.normalization = "rmsnorm";
  model.activation = "swiglu";
  model.ffn_hidden_size = 80;
  model.query_groups = 2;
  model.query_key_norm = true;
  model.bias = model.tie_embeddings = false;
  model.hidden_dropout = model.attention_dropout = 0;
}

/// ALiBi, one key for all queries, and the other activations.
void make_alibi(ModelConfig& model) {
  model.position_embedding = "alibi";
  model.query_groups = 1;
  model.activation = "geglu";
  model.ffn_hidden_size = 64;
}

void make_exact(ModelConfig& model) {
  model.position_embedding = "none";
  model.activation = "gelu_exact";
}

void require_close(const Trace& got, const Trace& want, double loss_tolerance, double norm_tolerance) {
  REQUIRE(got.losses.size() == want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(got.losses[i] == Approx(want.losses[i]).epsilon(loss_tolerance));
    CHECK(got.norms[i] == Approx(want.norms[i]).epsilon(norm_tolerance));
  }
}

}  // namespace

TEST_CASE("GPU training: one rank matches the CPU and repeats its bits") {
  const std::string precision = GENERATE("fp32", "bf16", "fp16");
  CAPTURE(precision);
  const ShardFolder folder;
  const Config config = config_of(folder, precision);
  const Trace cpu = train(config, "cpu"), gpu = train(config, "cuda");
  REQUIRE(gpu.losses.size() == kSteps);
  if (precision == "fp32") {
    require_close(gpu, cpu, 1e-5, 1e-4);
  } else {
    require_close(gpu, cpu, 5e-3, 5e-2);
  }
  CHECK(train(config, "cuda") == gpu);
}

TEST_CASE("GPU training: state in the host's memory has the bits of the GPU's") {
  const std::string precision = GENERATE("fp32", "bf16"), rule = GENERATE("adamw", "muon");
  CAPTURE(precision, rule);
  const ShardFolder folder;
  Config config = config_of(folder, precision);
  config.optimizer.name = rule;
  if (precision == "bf16") config.optimizer.moments_dtype = "bf16";
  const Trace plain = train(config, "cuda", "", folder.file("plain"));
  const std::string saved = folder.file("plain/checkpoints/step_00000003/");
  for (const double fraction : {1.0, 0.5}) {
    CAPTURE(fraction);
    Config offloaded = config;
    offloaded.optimizer.offload = "host";
    offloaded.optimizer.offload_fraction = fraction;
    const std::string run = folder.file(fmt::format("offloaded {}", fraction));
    CHECK(train(offloaded, "cuda", "", run) == plain);
    for (const auto& entry : std::filesystem::directory_iterator(saved)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("rank_")) continue;
      CHECK(contents_of(run + "/checkpoints/step_00000003/" + name) == contents_of(saved + name));
    }
  }
  Config refused = config;
  refused.optimizer.offload = "file";
  CHECK_THROWS_WITH(train(refused, "cuda"), Contains("take optimizer.offload = \"host\""));
}

TEST_CASE("GPU training: every family matches the CPU and repeats its bits") {
  const auto variant = GENERATE(make_llama, make_alibi, make_exact);
  const std::string precision = GENERATE("fp32", "bf16");
  const ShardFolder folder;
  Config config = config_of(folder, precision);
  variant(config.model);
  CAPTURE(precision, config.model.position_embedding);
  const Trace cpu = train(config, "cpu"), gpu = train(config, "cuda");
  if (precision == "fp32") {
    require_close(gpu, cpu, 1e-5, 1e-4);
  } else {
    require_close(gpu, cpu, 5e-3, 5e-2);
  }
  CHECK(train(config, "cuda") == gpu);
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.parallel.sequence_parallel = true;
  require_close(train(config, "cuda"), gpu, precision == "fp32" ? 1e-5 : 5e-3, precision == "fp32" ? 1e-4 : 5e-2);
}

TEST_CASE("GPU training: BERT and T5 match the CPU and repeat their bits") {
  const auto variant = GENERATE(like_megatron_bert, like_bert, like_megatron_t5, like_t5);
  const std::string precision = GENERATE("fp32", "bf16");
  const ShardFolder folder;
  Config config = config_of(folder, precision);
  variant(config.model);
  config.data.train = make_sentence_corpus(folder);
  config.data.split = "100,0,0";
  CAPTURE(precision, config.model.family, config.model.norm_position, config.model.position_embedding);
  const bool half = precision != "fp32";
  const Trace cpu = train(config, "cpu"), gpu = train(config, "cuda");
  REQUIRE(gpu.losses.size() == kSteps);
  require_close(gpu, cpu, half ? 5e-3 : 1e-5, half ? 5e-2 : 1e-4);
  CHECK(train(config, "cuda") == gpu);
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.parallel.sequence_parallel = true;
  require_close(train(config, "cuda"), gpu, half ? 5e-3 : 1e-5, half ? 5e-2 : 1e-4);
}

TEST_CASE("ranks that share a GPU train what one rank trains") {
  const ShardFolder folder;
  const Config one = config_of(folder, "fp32");
  const Trace want = train(one, "cuda");
  const int tensor = GENERATE(1, 2), pipeline = GENERATE(1, 2), data = GENERATE(1, 2);
  if (tensor * pipeline * data == 1) return;
  CAPTURE(tensor, pipeline, data);
  Config config = one;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.parallel.sequence_parallel = tensor > 1;
  config.optimizer.share = data > 1 ? "state" : "none";
  require_close(train(config, "cuda"), want, 1e-5, 1e-5);
}

TEST_CASE("GPU training: checkpoints resume from CPU to GPU and back") {
  const ShardFolder folder;
  Config whole = config_of(folder, "fp32");
  whole.train.steps = 2 * kSteps;
  whole.learning_rate.decay = "constant";
  const Trace want = train(whole, "cpu");
  for (const auto& [first, second] : {std::pair("cpu", "cuda"), std::pair("cuda", "cpu"), std::pair("cuda", "cuda")}) {
    CAPTURE(first, second);
    Config half = whole;
    half.train.steps = kSteps;
    const std::string run = folder.file(fmt::format("{}_{}", first, second));
    std::filesystem::create_directories(run);
    Trace joined = train(half, first, "", run);
    const Trace rest = train(whole, second, fmt::format("{}/checkpoints/step_{:08}", run, kSteps));
    joined.losses.insert(joined.losses.end(), rest.losses.begin(), rest.losses.end());
    joined.norms.insert(joined.norms.end(), rest.norms.begin(), rest.norms.end());
    require_close(joined, want, 1e-5, 1e-4);
    if (first == second) CHECK(joined == train(whole, first));
  }
}

TEST_CASE("GPU training: documents and a loss of weights match the CPU") {
  const std::string precision = GENERATE("fp32", "bf16");
  CAPTURE(precision);
  const ShardFolder folder;
  Config config = config_of(folder, precision);
  config.data.reset_attention_mask = config.data.reset_position_ids = config.data.eod_mask_loss = true;
  const Trace language_model = train(config, "cuda");
  config.loss = {"key_tokens", {1, 2, 30}, 0.25};
  const Trace key_tokens = train(config, "cuda");
  CHECK(key_tokens.losses[0] > 1.01 * language_model.losses[0]);
  const bool half = precision != "fp32";
  require_close(key_tokens, train(config, "cpu"), half ? 5e-3 : 1e-5, half ? 5e-2 : 1e-4);
  config.parallel.pipeline = 2;
  config.parallel.data = 2;
  require_close(train(config, "cuda"), key_tokens, half ? 5e-3 : 1e-5, half ? 5e-2 : 1e-4);
}
