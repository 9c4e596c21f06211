// The model against PyTorch's autograd in float64: logits, loss, every gradient, and five steps of training, on one
// rank and on layouts. What the parity tests cannot see, since all layouts share it, is seen here.
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include "comm/thread_communicator.h"
#include "golden/golden_file.h"
#include "support/tiny_training.h"
#include "train/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr double kTolerance = 1e-5;

const Golden& read_once(const std::string& name) {
  static std::map<std::string, Golden> files;
  const auto found = files.find(name);
  if (found != files.end()) return found->second;
  return files.emplace(name, read_golden(MEGATRON_GOLDEN_FOLDER "/" + name + ".h5")).first->second;
}

/// A batch cut into micro-batches by columns.
class GoldenMicroBatches {
 public:
  GoldenMicroBatches(const Config& config, const GoldenBatch& batch) {
    const std::int64_t s = config.model.sequence_length, b = config.train.micro_batch_size;
    const std::int64_t columns = config.train.global_batch_size, count = columns / b;
    for (std::int64_t i = 0; i < s; ++i) {
      positions_.push_back(static_cast<int>(i));
      for (std::int64_t j = 0; j < b; ++j) position_ids_.push_back(static_cast<int>(i));
    }
    for (std::int64_t k = 0; k < count; ++k) {
      std::vector<int>&tokens = tokens_.emplace_back(), &targets = targets_.emplace_back();
      for (std::int64_t i = 0; i < s; ++i) {
        for (std::int64_t j = k * b; j < (k + 1) * b; ++j) {
          tokens.push_back(batch.tokens[static_cast<std::size_t>(i * columns + j)]);
          targets.push_back(batch.targets[static_cast<std::size_t>(i * columns + j)]);
        }
      }
    }
    for (std::size_t k = 0; k < tokens_.size(); ++k) {
      MicroBatch micro_batch;
      micro_batch.main.tokens = {tokens_[k].data(), {s, b}, DType::i32};
      micro_batch.main.targets = {targets_[k].data(), {s, b}, DType::i32};
      micro_batch.main.position_ids = {position_ids_.data(), {s, b}, DType::i32};
      micro_batch.main.positions = {positions_.data(), {s}, DType::i32};
      micro_batch.first_sample = static_cast<std::int64_t>(k) * b;
      micro_batch.main.sequence = s;
      micro_batch.samples = b;
      micro_batches_.push_back(micro_batch);
    }
  }
  const std::vector<MicroBatch>& list() const { return micro_batches_; }

 private:
  std::vector<std::vector<int>> tokens_, targets_;
  std::vector<int> position_ids_, positions_;
  std::vector<MicroBatch> micro_batches_;
};

double targets_of(const Config& config) {
  return static_cast<double>(config.model.sequence_length * config.train.global_batch_size);
}

struct Layout {
  int tensor = 1, pipeline = 1, micro_batch = 3;
};

struct Results {
  double loss = 0, gradient_norm = 0;
  NamedValues gradients;
  std::vector<double> losses, norms;
};

Results compute(const Golden& golden, const Layout& layout) {
  Config config = golden.config;
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.train.micro_batch_size = layout.micro_batch;
  Results results;
  std::mutex mutex;
  run_as_threads(layout.tensor * layout.pipeline, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    set_values(replica.store(), golden.parameters);
    Timers timers;
    const double targets = targets_of(config);
    const auto forward_backward = [&](const GoldenBatch& batch, int step) {
      const GoldenMicroBatches micro_batches(config, batch);
      replica.forward_backward(micro_batches.list(), step, {.counts = {&targets, 1}}, timers);
    };
    forward_backward(golden.batch, 1);
    {
      const std::lock_guard lock(mutex);
      for (const Parameter& parameter : replica.store().all()) {
        if (parameter.owner) assemble(parameter, parameter.gradient, results.gradients);
      }
    }
    // Loss and norm are asked for without an effect on values.
    const Optimizer::Update first = replica.update({}, timers);
    backend.ops->fill(replica.optimizer().m(), 0);
    backend.ops->fill(replica.optimizer().v(), 0);
    replica.optimizer().set_updates(0);
    for (std::size_t i = 0; i < golden.steps.size(); ++i) {
      forward_backward(golden.steps[i], static_cast<int>(i) + 1);
      const Optimizer::Update update = replica.update(
          {.learning_rate = golden.learning_rate, .weight_decay = config.optimizer.weight_decay}, timers);
      if (world.rank() != 0) continue;
      results.losses.push_back(update.loss);
      results.norms.push_back(update.gradient_norm);
    }
    if (world.rank() != 0) return;
    results.loss = first.loss;
    results.gradient_norm = first.gradient_norm;
  });
  return results;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

// ‖Δ‖ / ‖g‖; a key bias, whose gradient is zero in exact arithmetic, by the size of the query bias' gradient.
double gradient_error(const Golden& golden, const std::string& name, const std::vector<float>& got) {
  const std::vector<float>& want = golden.gradients.at(name);
  std::string judged_by = name;
  if (const auto key = name.find("key.bias"); key != std::string::npos) judged_by.replace(key, 8, "query.bias");
  double difference = 0;
  for (std::size_t i = 0; i < want.size(); ++i) difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
  return std::sqrt(difference) / norm_of(golden.gradients.at(judged_by));
}

}  // namespace

TEST_CASE("loss, every gradient and five steps of AdamW are PyTorch's, on one rank and on layouts") {
  struct Case {
    std::string name;
    std::vector<Layout> layouts;
  };
  const std::vector<Layout> few = {Layout{}, Layout{2, 2, 1}, Layout{4, 1, 1}};
  const auto [name, layouts] =
      GENERATE_COPY(Case{"tiny_gpt", {Layout{}, Layout{1, 1, 1}, Layout{2, 3, 1}, Layout{2, 1, 3}, Layout{4, 1, 1}}},
                    Case{"tiny_llama", few}, Case{"tiny_query_key_norm", few}, Case{"tiny_plain", few},
                    Case{"tiny_window", few}, Case{"tiny_parallel", few}, Case{"tiny_parallel_one_norm", few},
                    Case{"tiny_alibi", {Layout{}, Layout{2, 2, 1}}});  // six heads
  const Golden& golden = read_once(name);
  for (const Layout& layout : layouts) {
    INFO(name << ": tensor " << layout.tensor << " pipeline " << layout.pipeline << " micro-batch "
              << layout.micro_batch);
    const Results results = compute(golden, layout);
    CHECK(results.loss == Approx(golden.loss).epsilon(kTolerance));
    CHECK(results.gradient_norm == Approx(golden.gradient_norm).epsilon(kTolerance));
    if (name == "tiny_gpt") CHECK(golden.gradients.size() == 2 + 3 * 16 + 2);
    REQUIRE(results.gradients.size() == golden.gradients.size());
    for (const auto& [parameter, gradient] : results.gradients) {
      INFO(parameter);
      REQUIRE(golden.gradients.count(parameter) == 1);
      REQUIRE(gradient.size() == golden.gradients.at(parameter).size());
      CHECK(gradient_error(golden, parameter, gradient) <= kTolerance);
    }
    REQUIRE(golden.losses.size() == 5);
    REQUIRE(results.losses.size() == golden.losses.size());
    for (std::size_t i = 0; i < results.losses.size(); ++i) {
      INFO("step " << i + 1);
      CHECK(results.losses[i] == Approx(golden.losses[i]).epsilon(kTolerance));
      CHECK(results.norms[i] == Approx(golden.norms[i]).epsilon(kTolerance));
    }
  }
}

TEST_CASE("logits are PyTorch's, whole or in parts of the vocabulary") {
  const auto [name, tensor] = GENERATE(
      std::pair<std::string, int>("tiny_gpt", 1), std::pair<std::string, int>("tiny_gpt", 2),
      std::pair<std::string, int>("tiny_gpt", 4), std::pair<std::string, int>("tiny_llama", 4),
      std::pair<std::string, int>("tiny_alibi", 2), std::pair<std::string, int>("tiny_query_key_norm", 4),
      std::pair<std::string, int>("tiny_plain", 2), std::pair<std::string, int>("tiny_window", 4),
      std::pair<std::string, int>("tiny_parallel", 2), std::pair<std::string, int>("tiny_parallel_one_norm", 4));
  INFO(name << ", tensor " << tensor);
  const Golden& golden = read_once(name);
  Config config = golden.config;
  config.parallel.tensor = tensor;
  const std::int64_t rows = config.model.sequence_length * config.train.micro_batch_size;
  const std::int64_t vocab = config.model.vocab_size, part = config.model.padded_vocab() / tensor;
  std::vector<float> logits(static_cast<std::size_t>(rows * vocab));
  run_as_threads(tensor, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    const Replica replica(config, grid, backend);
    set_values(replica.store(), golden.parameters);
    const GoldenMicroBatches micro_batches(config, golden.batch);
    const Buffer saved_memory(*backend.device, replica.plan().passes.slots.at(0));
    const Buffer scratch_memory(*backend.device, replica.plan().passes.slots.at(0));
    Arena saved("saved", saved_memory), scratch("scratch", scratch_memory);
    Context context{.ops = *backend.ops,
                    .region = replica.region(),
                    .saved = saved,
                    .scratch = scratch,
                    .micro_batch = micro_batches.list()[0],
                    .training = false};
    std::vector<float> mine(static_cast<std::size_t>(rows * part));
    replica.stage().logits(context, Tensor(mine.data(), {rows, part}, DType::f32));
    const std::int64_t first = world.rank() * part, count = std::clamp<std::int64_t>(vocab - first, 0, part);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(mine.data() + row * part, count, logits.data() + row * vocab + first);
    }
  });
  CHECK(relative_difference(logits, golden.logits) <= kTolerance);
}
