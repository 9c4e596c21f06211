// Sequence parallelism: what each tensor rank computes of a parameter's gradient, and that every sum which is needed is
// made. A missing sum is the classic silent bug: the loss still falls. So each is shown to matter, and its absence to
// be far outside of what the parity tests allow.
#include <cmath>
#include <mutex>
#include <set>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/pipeline/schedule.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr double kParity = 5e-5, kSeen = 1e-2;  // tolerance of parity, and what an error must be to be beyond doubt
constexpr int kTensor = 4;

struct LocalGradients {
  std::map<std::string, Placement> placement;
  std::vector<NamedValues> of_rank;  // boxes, before any sum over tensor ranks
  NamedValues summed;                // after GradientReducer with `broken` left out
};

Config config_on(int tensor, bool sequence_parallel) {
  Config config = tiny_config();
  config.model.layers = 2;
  config.train.micro_batch_size = 2;
  config.parallel.tensor = tensor;
  config.parallel.sequence_parallel = sequence_parallel;
  return config;
}

/// The records of a store with the same gradients, of which one says that it needs no sum over tensor ranks.
void copy_records(const ParameterStore& from, const std::string& broken, ParameterStore& to, Device& device) {
  for (Parameter parameter : from.all()) {
    if (parameter.name == broken) parameter.tensor = Placement::replica;
    to.declare(parameter);
  }
  to.allocate(device, DType::f32);
  for (std::size_t i = 0; i < to.all().size(); ++i) {
    const Tensor source = from.all()[i].gradient;
    std::copy_n(source.as<float>(), source.elements(), to.all()[i].gradient.as<float>());
  }
}

/// One step's forwards and backwards, without the sums that end it; these are then made as if `broken` needed none.
LocalGradients run(int tensor, bool sequence_parallel, const std::string& broken = "") {
  const Config config = config_on(tensor, sequence_parallel);
  LocalGradients result;
  result.of_rank.resize(static_cast<std::size_t>(tensor));
  std::mutex mutex;
  run_as_threads(tensor, [&](Communicator& world) {
    const ProcessGrid grid(world, {.tensor = tensor});
    const TensorRegion region(grid, sequence_parallel);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    const Stages stages = make_stages(config, grid, region, store);
    store.allocate(*backend.device, DType::f32);
    store.draw_initial(*backend.ops, config.train.seed, store.values());
    backend.ops->fill(store.gradients(), 0);

    const MemoryPlan plan = plan_memory(config, {.tensor = tensor}, grid.at());
    PipelineExecutor executor({stages.front().get()}, grid, region, plan.passes, *backend.device);
    const Buffer scratch_memory(*backend.device, plan.scratch);
    Arena scratch("scratch", scratch_memory);
    double loss = 0;
    TinyBatches batches(config, 0);
    Timers timers;
    const std::span<const MicroBatch> micro_batches = batches.step(1);
    const double gradient_scale = 1 / batches.targets();
    executor.run(one_f_one_b(0, 1, 4), micro_batches,
                 {.seed = config.train.seed,
                  .step = 1,
                  .loss_sums = Tensor(&loss, {1}, DType::f64),
                  .gradient_scales = {&gradient_scale, 1}},
                 *backend.ops, scratch, timers);

    ParameterStore copies;
    copy_records(store, broken, copies, *backend.device);
    GradientReducer(grid, copies).finish(*backend.ops, scratch);
    const std::lock_guard lock(mutex);
    for (const Parameter& parameter : store.all()) {
      const float* gradient = parameter.gradient.as<float>();
      result.of_rank[static_cast<std::size_t>(world.rank())][parameter.name] = {gradient,
                                                                                gradient + parameter.elements()};
      result.placement[parameter.name] = parameter.tensor;
    }
    for (const Parameter& parameter : copies.all()) {
      if (parameter.owner) assemble(parameter, parameter.gradient, result.summed);
    }
  });
  return result;
}

/// ‖a − b‖ by the size of b; a key bias' gradient is zero in exact arithmetic, and judged by the query bias'.
double error(const NamedValues& gradients, const NamedValues& right, const std::string& name) {
  std::string sized = name;
  if (name.ends_with("key.bias")) sized.replace(name.find("key.bias"), 8, "query.bias");
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < right.at(name).size(); ++i) {
    difference += std::pow(double{gradients.at(name).at(i)} - right.at(name).at(i), 2);
  }
  for (const float value : right.at(sized)) size += double{value} * value;
  return std::sqrt(difference / size);
}

/// Used on a slice of the sequence (Megatron-LM's list: norms, biases after row-parallel products), and here the
/// position table, which is added after the scatter.
std::set<std::string> used_on_slices() {
  std::set<std::string> names = {"embedding.position.weight", "final_norm.weight", "final_norm.bias"};
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    for (const char* name : {"attention_norm.weight", "attention_norm.bias", "attention.output.bias", "mlp_norm.weight",
                             "mlp_norm.bias", "mlp.down.bias"}) {
      names.insert(layer + name);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("sequence parallel: what is used on slices and nothing else is summed") {
  const LocalGradients one = run(1, false), split = run(kTensor, true);
  std::set<std::string> partial;
  for (const auto& [name, placement] : split.placement) {
    INFO(name);
    if (placement == Placement::partial) partial.insert(name);
    CHECK(placement != Placement::replica);
    CHECK(error(split.summed, one.summed, name) <= kParity);
    if (placement != Placement::partial) continue;
    // The sum of the ranks' parts is the gradient; each part alone is far from it.
    NamedValues sum = {{name, std::vector<float>(one.summed.at(name).size())}};
    for (const NamedValues& rank : split.of_rank) {
      for (std::size_t i = 0; i < sum[name].size(); ++i) sum[name][i] += rank.at(name)[i];
      CHECK(error(rank, one.summed, name) > kSeen);
    }
    CHECK(error(sum, one.summed, name) <= kParity);
  }
  CHECK(partial == used_on_slices());
}

TEST_CASE("sequence parallel: a sum left out shows in its own gradient alone") {
  const LocalGradients one = run(1, false);
  for (const std::string& broken : used_on_slices()) {
    INFO("without the sum of " << broken);
    const LocalGradients split = run(kTensor, true, broken);
    for (const auto& [name, placement] : split.placement) {
      INFO(name);
      CHECK((error(split.summed, one.summed, name) > kSeen) == (name == broken));
    }
  }
}

TEST_CASE("tensor parallel: without sequence parallelism gradients are whole") {
  const LocalGradients one = run(1, false), split = run(kTensor, false);
  for (const auto& [name, placement] : split.placement) {
    INFO(name);
    CHECK(placement != Placement::partial);
    CHECK((placement == Placement::replica) == (used_on_slices().count(name) == 1));
    if (placement != Placement::replica) continue;
    for (const NamedValues& rank : split.of_rank) CHECK(error(rank, one.summed, name) <= kParity);
  }
}
