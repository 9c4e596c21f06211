// Seconds of the operations that are no products: small models are trained for a few steps, and each call of a verb is
// timed where it is, with what caches hold then. All models are trained on one rank alone, by all ranks at once.
#include <algorithm>
#include <map>

#include "backend/ops/backends.h"
#include "planning/bench/cases.h"
#include "planning/bench/measured_machine.h"
#include "planning/bench/training_job.h"
#include "planning/layout_search/work.h"

namespace megatron {

namespace {

/// Passes verbs on and notes the seconds of each, by its place among the verbs since start().
class MeasuringOps final : public Ops {
 public:
  MeasuringOps(std::unique_ptr<Ops> inner, Device& device) : inner_(std::move(inner)), device_(device) {}

  struct Call {
    Event work;
    std::vector<double> seconds;
  };

  bool measures = false;

  void start() { next_ = 0; }
  const std::vector<Call>& calls() const { return calls_; }

#define MEGATRON_VERB(name, parameters, arguments)                            \
  void name parameters override {                                             \
    if (!measures) return static_cast<void>(inner_->name arguments);          \
    const double begin = Timers::steady_seconds();                            \
    inner_->name arguments;                                                   \
    device_.synchronize();                                                    \
    add(Timers::steady_seconds() - begin, std::get<0>(Work::name arguments)); \
  }
  MEGATRON_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB

  // Fused verbs are made in parts (Ops), so that the parts are measured.

  std::size_t workspace_bytes() const override {
    return inner_->workspace_bytes();
  }
  void reserve(std::size_t bytes) override {
    inner_->reserve(bytes);
  }
  void read(ConstTensor x, void* host) override {
    inner_->read(x, host);
  }

 private:
  void add(double seconds, const Event& work) {
    if (next_ == calls_.size()) calls_.push_back({work, {}});
    calls_[next_++].seconds.push_back(seconds);
  }

  std::unique_ptr<Ops> inner_;
  Device& device_;
  std::vector<Call> calls_;
  std::size_t next_ = 0;
};

struct SmallModel {
  ModelConfig model;
  std::int64_t batch;
  /// Whether its parameters are more than caches hold, as a run's are from one step to the next. Operations on them and
  /// their gradients are measured on these models alone, all others on all.
  bool large = false;
  std::string_view optimizer = kUpdateRules.front().name;
  std::string_view moments = "fp32";
};

ModelConfig two_layers(std::int64_t hidden, std::int64_t sequence, std::int64_t vocabulary) {
  return gpt(2, hidden, std::max<std::int64_t>(1, hidden / 64), sequence, vocabulary);
}

/// Every activation and normalization, with dropout and without, rotary positions and experts: each with activations
/// that caches hold and with some that they do not. Plain models also with many rows or many parameters, the latter
/// with every update rule, and with states in bf16.
std::vector<SmallModel> small_models(bool quick) {
  const ModelConfig base = quick ? two_layers(64, 16, 64) : two_layers(256, 128, 1024);
  std::vector<ModelConfig> kinds;
  for (const ActivationRow& row : kActivations) {
    kinds.push_back(base);
    kinds.back().activation = row.name;
  }
  kinds[1].hidden_dropout = kinds[1].attention_dropout = 0.1;
  kinds[3].normalization = "rmsnorm";
  kinds[3].position_embedding = "rope";
  ModelConfig experts = base;
  experts.moe.experts = 4;
  experts.moe.top_k = 2;
  kinds.push_back(experts);
  std::vector<SmallModel> models;
  for (const ModelConfig& kind : kinds) {
    models.push_back({kind, 2});
    if (!quick) models.push_back({kind, 24});
  }
  if (quick) {
    for (std::size_t i = 0; i < kUpdateRules.size(); ++i) {
      models[i].large = true;
      models[i].optimizer = kUpdateRules[i].name;
    }
    models[kUpdateRules.size()].large = true;
    models[kUpdateRules.size()].moments = "bf16";
    return models;
  }
  models.push_back({two_layers(64, 64, 512), 4});
  models.push_back({two_layers(64, 64, 2048), 192});
  models.push_back({.model = two_layers(1024, 32, 8192), .batch = 2, .large = true, .moments = "bf16"});
  for (const UpdateRuleFacts& row : kUpdateRules) {
    // Rules of whole matrices have many products, which take long for large ones, and others' operations.
    models.push_back({two_layers(row.needs_matrices ? 256 : 1024, 32, 8192), 2, true, row.name});
  }
  return models;
}

/// Sums by operation and bytes.
struct Sum {
  double bytes = 0, seconds = 0;
  int calls = 0;
};
using Sums = std::map<std::string, std::map<double, Sum>>;

// Sizes that are close to each other become one.
SecondsByBytes joined(const std::map<double, Sum>& by_bytes) {
  constexpr double close = 1.3;
  SecondsByBytes seconds;
  Sum sum;
  double first = 0;
  const auto put = [&] {
    if (sum.calls > 0) seconds.set(sum.bytes / sum.calls, sum.seconds / sum.calls);
  };
  for (const auto& [bytes, each] : by_bytes) {
    if (bytes > close * first) {
      put();
      sum = {};
      first = bytes;
    }
    sum = {sum.bytes + each.bytes, sum.seconds + each.seconds, sum.calls + each.calls};
  }
  put();
  return seconds;
}

// A device that works in the background is waited for after each verb: what that adds to the least of verbs.
double waiting_seconds(const MeasuredMachine& machine) {
  if (machine.device().is_host_memory()) return 0;
  constexpr int rounds = 9, in_a_row = 100;
  const Buffer one(machine.device(), sizeof(float));
  const auto fill = [&](int) { machine.ops().fill(one.tensor({1}, DType::f32), 0); };
  return machine.seconds(rounds, 1, fill) - machine.seconds(rounds, in_a_row, fill);
}

}  // namespace

double measure_operations(MeasuredMachine& machine, DType type, MeasuredRates& rates) {
  const int steps = machine.settings.quick ? 2 : 5;
  const std::unique_ptr<Communicator> alone = machine.world.split(machine.world.rank(), 0, "alone");
  const double waited = waiting_seconds(machine);
  Sums sums;
  std::vector<double> between;  // for each model: seconds of a step outside all verbs, per verb
  for (const SmallModel& small : small_models(machine.settings.quick)) {
    Compute compute;
    compute.backend = machine.device().is_host_memory() ? make_cpu_backend(machine.settings.threads)
                                                        : make_cuda_backend(machine.settings.local_rank);
    compute.transport = staged_transport(*alone, *compute.backend.device);
    auto measuring = std::make_unique<MeasuringOps>(std::move(compute.backend.ops), *compute.backend.device);
    MeasuringOps& ops = *measuring;
    compute.backend.ops = std::move(measuring);
    const Config config = training_config(small.model, small.batch, [&](Config& edited) {
      edited.precision.compute = type == DType::f32 ? "fp32" : "bf16";
      edited.optimizer.name = small.optimizer;
      edited.optimizer.moments_dtype = small.moments;
    });
    TrainingJob job(config, std::move(compute), *alone);
    job.seconds(1);
    std::vector<double> plain;
    for (int step = 0; step < steps; ++step) {
      machine.world.barrier();
      plain.push_back(job.seconds(1));
      ops.start();
      ops.measures = true;
      machine.world.barrier();
      job.seconds(1);
      ops.measures = false;
    }
    double busy = 0;
    for (const MeasuringOps::Call& call : ops.calls()) {
      const double seconds = std::max(median(call.seconds) - waited, 1e-9);
      busy += seconds;
      const auto* other = std::get_if<MemoryWork>(&call.work);
      if (other == nullptr || other->bytes == 0 || (other->of_parameters && !small.large)) continue;
      Sum& sum = sums[other->key()][other->bytes];
      sum = {sum.bytes + other->bytes, sum.seconds + seconds, sum.calls + 1};
    }
    between.push_back((median(plain) - busy) / static_cast<double>(ops.calls().size()));
  }
  double gap = median(between);
  std::vector<double*> numbers = {&gap};
  for (auto& [operation, by_bytes] : sums) {
    for (auto& [bytes, sum] : by_bytes) numbers.push_back(&sum.seconds);
  }
  machine.average(numbers);
  for (const auto& [operation, by_bytes] : sums) rates.others[operation] = joined(by_bytes);
  return std::max(0.0, gap);
}

}  // namespace megatron
