#include "bench/benchmark_experts.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/sgemm_reference.h"
#include "bench/timed_ops.h"
#include "bench/training_job.h"
#include "config/resolve.h"
#include "model/flops.h"

namespace megatron {

namespace {

/// Six layers of GPT-2 124M's width, of a smaller vocabulary: its head is not what is measured.
Config dense_model() {
  Config config;
  ModelConfig& model = config.model;
  model.layers = 6;
  model.hidden_size = 768;
  model.attention_heads = 12;
  model.ffn_hidden_size = 3072;
  model.sequence_length = 256;
  model.vocab_size = 8192;
  model.hidden_dropout = model.attention_dropout = 0;
  config.train.global_batch_size = config.train.micro_batch_size = 4;
  config.train.steps = 1000;
  config.data.train = "pseudo-random tokens";  // rules want a name; nothing is read
  return config;
}

Config model_with_experts(double capacity_factor) {
  Config config = dense_model();
  MoeConfig& moe = config.model.moe;
  moe.experts = 8;
  moe.top_k = 2;
  moe.ffn_hidden_size = config.model.ffn_hidden_size / moe.top_k;
  moe.capacity_factor = capacity_factor;
  return config;
}

ExpertsCase one_rank(const char* name, Config config) {
  resolve(config, 1, nullptr);
  return {name, config};
}

ExpertsCase two_ranks(const char* name, int expert_ranks) {
  Config config = model_with_experts(1);
  config.parallel.data = 2;
  config.parallel.expert = expert_ranks;
  config.train.micro_batch_size = config.train.global_batch_size / 2;
  resolve(config, 2, nullptr);
  return {name, config};
}

/// A case in training, and what its steps took.
class ExpertsJob {
 public:
  ExpertsJob(const ExpertsCase& benchmark, Communicator& world)
      : benchmark_(benchmark), job_(benchmark.config, timed_backend(), world) {}

  void warm_up() {
    job_.seconds(1);
    ops_->take();
  }
  void measure() {
    const double step = job_.seconds(1);
    const TimedOps::Costs costs = ops_->take();
    const auto share_of = [&](auto... verbs) {
      double sum = 0;
      for (const char* verb : {verbs...}) {
        if (const auto found = costs.find(verb); found != costs.end()) sum += found->second.seconds.wall;
      }
      return sum / step;
    };
    seconds_.push_back(step);
    moving_.push_back(share_of("dispatch_rows", "combine_rows", "combine_gates_backward"));
    routing_.push_back(share_of("route_forward", "plan_routes", "route_losses", "route_backward"));
  }

  /// `sgemm`: FLOP/s of the bare products; 0: not measured.
  ExpertsTimes times(const ExpertsJob& first, double sgemm) const {
    const Config& config = benchmark_.config;
    const auto tokens = static_cast<double>(config.train.global_batch_size * config.model.sequence_length);
    ExpertsTimes times{.name = benchmark_.name, .seconds = median(seconds_)};
    times.tokens_per_second = tokens / times.seconds;
    times.ratio = median_ratio(first.seconds_, seconds_) * flops() / first.flops();
    if (sgemm > 0) times.share = flops() * times.tokens_per_second / sgemm;
    times.moving = median(moving_);
    times.routing = median(routing_);
    return times;
  }

 private:
  double flops() const { return flops_per_token(benchmark_.config.model).model; }
  Backend timed_backend() {
    Backend backend = make_cpu_backend();
    auto ops = std::make_unique<TimedOps>(std::move(backend.ops));
    ops_ = ops.get();
    backend.ops = std::move(ops);
    return backend;
  }

  const ExpertsCase& benchmark_;
  TimedOps* ops_ = nullptr;
  TrainingJob job_;
  std::vector<double> seconds_, moving_, routing_;
};

}  // namespace

std::vector<ExpertsCase> experts_cases(int ranks) {
  if (ranks == 2) return {two_ranks("8 experts, data 2", 1), two_ranks("8 experts, expert 2", 2)};
  return {one_rank("dense", dense_model()), one_rank("8 experts, capacity factor 1", model_with_experts(1)),
          one_rank("8 experts, capacity factor 1.25", model_with_experts(1.25))};
}

std::vector<ExpertsTimes> measure_experts(const std::vector<ExpertsCase>& cases, int rounds, Communicator& world) {
  std::vector<std::unique_ptr<ExpertsJob>> jobs;
  for (const ExpertsCase& each : cases) jobs.push_back(std::make_unique<ExpertsJob>(each, world));
  Backend bare = make_cpu_backend();
  const Config& first = cases.front().config;
  std::optional<SgemmReference> sgemm;
  if (world.size() == 1) sgemm.emplace(first.model, 1, first.train.global_batch_size, bare);
  for (const auto& job : jobs) job->warm_up();
  for (int round = 0; round < rounds; ++round) {
    if (sgemm) sgemm->measure();
    for (const auto& job : jobs) job->measure();
  }
  const double rate = sgemm ? sgemm->flops() / sgemm->seconds().wall : 0;
  std::vector<ExpertsTimes> times;
  for (const auto& job : jobs) times.push_back(job->times(*jobs.front(), rate));
  return times;
}

std::string describe(const std::vector<ExpertsTimes>& times) {
  std::string text = fmt::format(
      "moe: 6 layers of hidden size 768, batch 4 x 256; 8 experts, 2 per token, of half the dense inner width, in "
      "turn\n  {:<34}{:>10}{:>12}{:>10}{:>10}{:>10}{:>10}\n",
      "", "ms a step", "tokens/s", "of first", "of sgemm", "moving", "routing");
  const auto percent = [](double part) { return part > 0 ? fmt::format("{:.1f} %", 100 * part) : std::string(); };
  for (const ExpertsTimes& each : times) {
    text += fmt::format("  {:<34}{:>10.1f}{:>12.0f}{:>10.3f}{:>10}{:>10}{:>10}\n", each.name, 1e3 * each.seconds,
                        each.tokens_per_second, each.ratio, percent(each.share), percent(each.moving),
                        percent(each.routing));
  }
  return text + "  of first: model FLOP/s over the first line's; moving, routing: parts of the step\n";
}

std::string to_json(const ExpertsTimes& times) {
  return nlohmann::json{{"case", "moe"},
                        {"name", times.name},
                        {"step_seconds", times.seconds},
                        {"tokens_per_second", times.tokens_per_second},
                        {"ratio", times.ratio},
                        {"share_of_sgemm", times.share},
                        {"moving", times.moving},
                        {"routing", times.routing}}
             .dump() +
         '\n';
}

}  // namespace megatron
