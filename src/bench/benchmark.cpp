#include "bench/benchmark.h"

#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <optional>

#include "bench/random_batch.h"
#include "bench/sgemm_reference.h"
#include "bench/timed_ops.h"
#include "config/resolve.h"
#include "model/flops.h"
#include "system/host_name.h"
#include "system/log.h"
#include "system/memory_usage.h"
#include "train/compute.h"
#include "train/grid.h"
#include "train/replica.h"

namespace megatron {

namespace {

Config case_config(ModelConfig model, std::int64_t batch, int tensor = 1, int data = 1,
                   const std::string& compute = "fp32") {
  Config config;
  config.precision.compute = compute;
  config.model = model;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.parallel.tensor = tensor;
  config.parallel.data = data;
  config.train.global_batch_size = batch;
  config.train.micro_batch_size = batch / data;
  config.train.steps = 1000;
  config.data.train = "pseudo-random tokens";  // rules want a name; nothing is read
  resolve(config, tensor * data, nullptr);
  return config;
}

ModelConfig gpt2_124m(std::int64_t sequence) {
  ModelConfig model;
  model.layers = 12;
  model.hidden_size = 768;
  model.attention_heads = 12;
  model.sequence_length = sequence;
  model.max_position_embeddings = 1024;
  model.vocab_size = 50257;
  return model;
}

ModelConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t sequence) {
  ModelConfig model;
  model.layers = layers;
  model.hidden_size = hidden;
  model.attention_heads = heads;
  model.sequence_length = sequence;
  model.vocab_size = 50257;
  return model;
}

ModelConfig bert_base() {
  ModelConfig model = gpt(12, 768, 12, 512);
  model.family = "bert";
  model.vocab_size = 30522;
  return model;
}

ModelConfig t5_base_4_layers() {
  ModelConfig model = gpt(4, 768, 12, 512);
  model.family = "t5";
  model.decoder_sequence_length = 128;
  model.position_embedding = "relative";
  model.normalization = "rmsnorm";
  model.activation = "relu";
  model.attention_scale = "none";
  model.bias = false;
  model.scale_head = true;
  model.vocab_size = 32128;
  return model;
}

/// Six layers of the 124M's width; an expert is half as wide as the 124M's feed-forward part.
ModelConfig mixtral_6_layers() {
  ModelConfig model = gpt(6, 768, 12, 256);
  model.position_embedding = "rope";
  model.normalization = "rmsnorm";
  model.activation = "swiglu";
  model.bias = model.tie_embeddings = false;
  model.vocab_size = 8192;
  model.moe.experts = 8;
  model.moe.ffn_hidden_size = 1536;
  model.moe.drop = "none";
  return model;
}

BenchmarkCase gpu_case(const char* name, const char* title, const ModelConfig& model, std::int64_t batch) {
  return {.name = name, .title = title, .config = case_config(model, batch, 1, 1, "bf16"), .steps = 20, .gpu = true};
}

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 4;
  model.hidden_size = 256;
  model.attention_heads = 4;
  model.sequence_length = 256;
  model.vocab_size = 384;
  return model;
}

double minor_page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

/// Samples of the parts of a step by name, and their medians.
class PartSamples {
 public:
  void add(const std::string& name, Seconds seconds, int calls) {
    Samples& part = parts_[name];
    part.seconds.push_back(seconds);
    part.calls = calls;
  }
  std::vector<BenchmarkPart> medians() const {
    std::vector<BenchmarkPart> result;
    for (const auto& [name, part] : parts_) result.push_back({name, median(part.seconds), part.calls, 0});
    return result;
  }

 private:
  struct Samples {
    std::vector<Seconds> seconds;
    int calls = 0;
  };
  std::map<std::string, Samples> parts_;
};

// The case's configuration on the device that is asked for.
Config config_on(const BenchmarkCase& benchmark, const BenchmarkSettings& settings, Communicator& world) {
  Config config = benchmark.config;
  config.run.device = settings.device;
  config.run.threads = settings.threads;
  std::vector<std::string> warnings;
  config.run = choose_device(config.run, world, warnings);
  for (const std::string& warning : warnings) Log(world.rank() == 0).warning(std::string_view(warning));
  return config;
}

// Verbs are timed where they are done when their call returns.
Compute timed_compute(const RunConfig& run, Communicator& world, int local_rank, TimedOps*& timed) {
  Compute compute = start_compute(run, world, host_name(), local_rank);
  if (!compute.backend.device->is_host_memory()) return compute;
  auto ops = std::make_unique<TimedOps>(std::move(compute.backend.ops));
  timed = ops.get();
  compute.backend.ops = std::move(ops);
  return compute;
}

void count_flops(std::vector<BenchmarkPart>& verbs, const MoeConfig& moe, const MemoryPlan& plan) {
  for (BenchmarkPart& verb : verbs) {
    // Without drops a plan multiplies all places of a round, a step those that are filled.
    if (verb.name == "matmul" && moe.drop != "none") verb.flops = plan.matmul_flops;
    // Two of the seven products of the scores' size are the forward's.
    if (verb.name == "attention_forward") verb.flops = plan.attention_flops * 2 / 7;
    if (verb.name == "attention_backward") verb.flops = plan.attention_flops * 5 / 7;
  }
}

std::vector<BenchmarkPart> parts_of(const SgemmReference& sgemm) {
  std::vector<BenchmarkPart> parts;
  for (const SgemmReference::Product& product : sgemm.products()) {
    parts.push_back({product.name, median(product.samples), product.calls, product.flops});
  }
  return parts;
}

// A step of the whole job: it takes as long as its slowest rank.
Seconds of_job(Seconds mine, Communicator& world) {
  return {world.all_reduce_value(mine.wall, Reduce::maximum), world.all_reduce_value(mine.cpu) / world.size()};
}

Seconds mean_over_ranks(Seconds mine, Communicator& world) {
  return {world.all_reduce_value(mine.wall) / world.size(), world.all_reduce_value(mine.cpu) / world.size()};
}

}  // namespace

std::vector<BenchmarkCase> benchmark_cases() {
  return {
      {"gpt2_124m_4x256", "GPT-2 124M, batch 4 x 256", case_config(gpt2_124m(256), 4), 7},
      {"gpt2_124m_1x1024", "GPT-2 124M, batch 1 x 1024", case_config(gpt2_124m(1024), 1), 7},
      {"small_8x256", "4 layers of hidden size 256, vocabulary 384, batch 8 x 256", case_config(small_model(), 8), 21},
      {"gpt2_124m_bf16", "GPT-2 124M, batch 4 x 256, bf16", case_config(gpt2_124m(256), 4, 1, 1, "bf16"), 7},
      {"bert_base_8x512", "BERT-base, batch 8 x 512", case_config(bert_base(), 8), 5},
      {"t5_base_4x512", "4 + 4 layers of T5-base, batch 4 x 512 + 128", case_config(t5_base_4_layers(), 4), 7},
      {"mixtral_4x256", "6 layers of a Mixtral with hidden size 768, batch 4 x 256", case_config(mixtral_6_layers(), 4),
       7},
      {"gpt2_124m_tensor2", "GPT-2 124M, batch 4 x 256, tensor 2", case_config(gpt2_124m(256), 4, 2, 1), 7, 2},
      {"gpt2_124m_data2", "GPT-2 124M, batch 4 x 256, data 2", case_config(gpt2_124m(256), 4, 1, 2), 7, 2},
      gpu_case("gpu_gpt2_124m", "GPT-2 124M, batch 64 x 1024, bf16", gpt(12, 768, 12, 1024), 64),
      gpu_case("gpu_gpt2_1558m", "GPT-2 1.5B, batch 16 x 1024, bf16", gpt(48, 1600, 25, 1024), 16),
      gpu_case("gpu_7b_4_layers", "4 layers of a 7B model, batch 4 x 4096, bf16", gpt(4, 4096, 32, 4096), 4)};
}

namespace {

// A model in training on this rank, and what its steps have taken.
class BenchmarkJob {
 public:
  BenchmarkJob(const BenchmarkCase& benchmark, const BenchmarkSettings& settings, Communicator& world)
      : config_(config_on(benchmark, settings, world)),
        world_(world),
        compute_(timed_compute(config_.run, world, settings.local_rank, ops_)),
        grid_(world, grid_shape(config_), compute_.transport.get()),
        replica_(config_, grid_, compute_.backend),
        batch_(config_, grid_.data().rank(), *compute_.backend.device) {
    timers_.set_ranges(compute_.backend.ops->ranges());
    for (Communicator* group :
         {&grid_.tensor(), &grid_.expert(), &grid_.copies(), &grid_.copies(CopyGroup::experts), &grid_.model()}) {
      group->set_meter(&meter_);
    }
  }

  Backend& backend() { return compute_.backend; }
  double tokens() const { return static_cast<double>(config_.train.global_batch_size * config_.model.sequence_length); }

  /// Times and page faults of the steps of one kind.
  struct Samples {
    std::vector<Seconds> seconds;
    std::vector<double> communication, page_faults;
    PartSamples sections, verbs;
  };

  void step(bool overlap, Samples* samples) {
    constexpr double learning_rate = 1e-4;
    replica_.overlap_gradients(overlap);
    world_.barrier();
    if (ops_ != nullptr) ops_->take();
    timers_.reset();
    const double faults = minor_page_faults();
    const Seconds seconds = time_of([&] {
      replica_.forward_backward(batch_.micro_batches(), ++step_, batch_.loss(), timers_);
      replica_.update({.learning_rate = learning_rate, .weight_decay = 0.01}, timers_);
      compute_.backend.device->synchronize();
    });
    if (samples == nullptr) return;
    samples->page_faults.push_back(minor_page_faults() - faults);
    for (const Section section :
         {Section::forward, Section::backward, Section::communication, Section::optimizer, Section::other}) {
      samples->sections.add(name_of(section), {.wall = timers_.seconds(section)}, 0);
    }
    if (ops_ != nullptr) {
      for (const auto& [verb, cost] : ops_->take()) samples->verbs.add(verb, cost.seconds, cost.calls);
    }
    const double communication = timers_.seconds(Section::communication);
    samples->communication.push_back(-world_.all_reduce_value(-communication, Reduce::maximum));
    samples->seconds.push_back(of_job(seconds, world_));
  }

  void describe_steps(BenchmarkResult& result, const Samples& samples) const {
    result.device = compute_.backend.device->description();
    result.step = median(samples.seconds);
    result.communication = median(samples.communication);
    result.page_faults = median(samples.page_faults);
    result.sections = samples.sections.medians();
    result.verbs = samples.verbs.medians();
    count_flops(result.verbs, config_.model.moe, replica_.plan());
    result.peak_resident_bytes = world_.all_reduce_value(static_cast<double>(peak_resident_bytes()));
    result.planned_bytes = static_cast<double>(replica_.plan().total());
  }

 private:
  Config config_;
  Communicator& world_;
  TimedOps* ops_ = nullptr;
  Compute compute_;
  ProcessGrid grid_;
  Timers timers_;
  TrafficMeter meter_{.timers = &timers_};
  Replica replica_;
  RandomBatch batch_;
  std::int64_t step_ = 0;
};

}  // namespace

BenchmarkResult run_benchmark(const BenchmarkCase& benchmark, const BenchmarkSettings& settings, Communicator& world) {
  constexpr int warm_up = 2;
  const Config& config = benchmark.config;
  BenchmarkJob job(benchmark, settings, world);
  std::optional<SgemmReference> sgemm;
  if (!settings.training_only) {
    const std::int64_t samples = config.train.global_batch_size / config.parallel.data;
    sgemm.emplace(config.model, config.parallel.tensor, samples, job.backend());
  }

  BenchmarkJob::Samples steps, overlapped_steps;
  for (int step = 0; step < warm_up; ++step) job.step(false, nullptr);
  for (int step = 0; step < (settings.steps > 0 ? settings.steps : benchmark.steps); ++step) {
    world.barrier();
    if (sgemm) sgemm->measure();
    job.step(false, &steps);
    if (config.parallel.data > 1) job.step(true, &overlapped_steps);
  }

  BenchmarkResult result;
  result.ranks = world.size();
  result.threads = settings.threads;
  result.tokens = job.tokens();
  result.model_flops = flops_per_token(config.model).model * result.tokens;
  job.describe_steps(result, steps);
  if (config.parallel.data > 1) {
    result.overlapped_step = median(overlapped_steps.seconds);
    result.overlapped_communication = median(overlapped_steps.communication);
  }
  if (sgemm) {
    result.sgemm = mean_over_ranks(sgemm->seconds(), world);
    result.sgemm_flops = sgemm->flops();
    result.products = parts_of(*sgemm);
  }
  return result;
}

}  // namespace megatron
