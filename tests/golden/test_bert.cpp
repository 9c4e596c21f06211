// BERT against PyTorch's autograd in float64: both terms of the loss and every gradient, with norms before and after
// each part, on one rank and on layouts. The script that made the files compares its formulas with transformers'
// models.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>
#include <numeric>

#include "comm/thread_communicator.h"
#include "golden/golden_file.h"
#include "support/tiny_training.h"
#include "train/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr double kTolerance = 1e-5;

struct Layout {
  int tensor = 1, pipeline = 1, micro_batch = 3;
  const char* schedule = "1f1b";
  bool recompute = false;
};

/// Columns [first, first + count) of [s, columns].
template <class T>
std::vector<T> columns_of(const std::vector<T>& all, std::int64_t columns, std::int64_t first, std::int64_t count) {
  std::vector<T> part;
  for (auto row = all.begin(); row != all.end(); row += columns)
    part.insert(part.end(), row + first, row + first + count);
  return part;
}

/// A batch cut into micro-batches by columns.
class PairMicroBatches {
 public:
  PairMicroBatches(const Config& config, const GoldenBatch& batch) {
    const std::int64_t s = config.model.sequence_length, b = config.train.micro_batch_size;
    const std::int64_t columns = config.train.global_batch_size;
    for (std::int64_t row = 0; row < s; ++row) {
      positions_.push_back(static_cast<int>(row));
      position_ids_.insert(position_ids_.end(), static_cast<std::size_t>(b), static_cast<int>(row));
    }
    parts_.reserve(static_cast<std::size_t>(columns / b));
    for (std::int64_t first = 0; first < columns; first += b) {
      const auto cut = [&](const auto& all) { return columns_of(all, columns, first, b); };
      parts_.push_back({cut(batch.tokens), cut(batch.targets), cut(batch.types), cut(batch.weights), cut(batch.lengths),
                        cut(batch.labels)});
      const GoldenBatch& part = parts_.back();
      MicroBatch micro_batch;
      micro_batch.samples = b;
      micro_batch.first_sample = first;
      micro_batch.main = {.tokens = {part.tokens.data(), {s, b}, DType::i32},
                          .types = {part.types.data(), {s, b}, DType::i32},
                          .position_ids = {position_ids_.data(), {s, b}, DType::i32},
                          .positions = {positions_.data(), {s}, DType::i32},
                          .document_starts = {},
                          .lengths = {part.lengths.data(), {b}, DType::i32},
                          .targets = {part.targets.data(), {s, b}, DType::i32},
                          .weights = {part.weights.data(), {s, b}, DType::f32},
                          .labels = {part.labels.data(), {b}, DType::i32},
                          .sequence = s};
      list_.push_back(micro_batch);
    }
  }
  std::span<const MicroBatch> list() const { return list_; }

 private:
  std::vector<GoldenBatch> parts_;
  std::vector<int> positions_, position_ids_;
  std::vector<MicroBatch> list_;
};

std::vector<double> counts_of(const GoldenBatch& batch) {
  return {std::accumulate(batch.weights.begin(), batch.weights.end(), 0.0),
          static_cast<double>(std::count_if(batch.labels.begin(), batch.labels.end(), [](int l) { return l >= 0; }))};
}

struct Results {
  std::vector<double> terms;
  double loss = 0, gradient_norm = 0;
  NamedValues gradients;
};

Results compute(const Golden& golden, const Layout& layout) {
  Config config = golden.config;
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.schedule = layout.schedule;
  config.recompute.mode = layout.recompute ? "full" : "none";
  config.train.micro_batch_size = layout.micro_batch;
  Results results;
  std::mutex mutex;
  run_as_threads(layout.tensor * layout.pipeline, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    set_values(replica.store(), golden.parameters);
    const PairMicroBatches micro_batches(config, golden.batch);
    const std::vector<double> counts = counts_of(golden.batch);
    Timers timers;
    replica.forward_backward(micro_batches.list(), 1, {.counts = counts}, timers);
    {
      const std::lock_guard lock(mutex);
      for (const Parameter& parameter : replica.store().all()) {
        if (parameter.owner) assemble(parameter, parameter.gradient, results.gradients);
      }
    }
    const Replica::Update update = replica.update({}, timers);
    if (world.rank() != 0) return;
    results.terms.assign(update.loss.terms.begin(), update.loss.terms.end());
    results.loss = update.loss.total;
    results.gradient_norm = update.gradient_norm;
  });
  return results;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

// A key bias, whose gradient is zero in exact arithmetic, by the size of the query bias' gradient.
double gradient_error(const Golden& golden, const std::string& name, std::vector<float> got) {
  const std::vector<float>& want = golden.gradients.at(name);
  std::string judged_by = name;
  if (const auto key = name.find("key.bias"); key != std::string::npos) judged_by.replace(key, 8, "query.bias");
  for (std::size_t i = 0; i < want.size(); ++i) got[i] -= want[i];
  return norm_of(got) / norm_of(golden.gradients.at(judged_by));
}

void check(const Golden& golden, const Golden& expected, const Layout& layout) {
  const Results results = compute(golden, layout);
  REQUIRE(results.terms.size() == 2);
  CHECK(results.terms[0] == Approx(expected.loss_terms.at(0)).epsilon(kTolerance));
  CHECK(results.terms[1] == Approx(expected.loss_terms.at(1)).epsilon(kTolerance));
  CHECK(results.loss == Approx(expected.loss).epsilon(kTolerance));
  CHECK(results.gradient_norm == Approx(expected.gradient_norm).epsilon(kTolerance));
  REQUIRE(results.gradients.size() == expected.gradients.size());
  for (const auto& [parameter, gradient] : results.gradients) {
    INFO(parameter);
    REQUIRE(expected.gradients.count(parameter) == 1);
    REQUIRE(gradient.size() == expected.gradients.at(parameter).size());
    CHECK(gradient_error(expected, parameter, gradient) <= kTolerance);
  }
}

}  // namespace

TEST_CASE("BERT: both losses and every gradient are PyTorch's, on one rank and on layouts") {
  const std::string name = GENERATE("tiny_bert", "tiny_bert_post");
  const Golden golden = read_golden(MEGATRON_GOLDEN_FOLDER "/" + name + ".h5");
  for (const Layout& layout : {Layout{}, Layout{1, 1, 1}, Layout{2, 1, 3}, Layout{4, 2, 1},
                               Layout{1, 2, 1, "zero_bubble"}, Layout{2, 2, 1, "1f1b", true}}) {
    INFO(name << ": tensor " << layout.tensor << " pipeline " << layout.pipeline << " micro-batch "
              << layout.micro_batch << " " << layout.schedule);
    check(golden, golden, layout);
  }
}

TEST_CASE("BERT: the golden files tell a token that sees padding, a wrong type and a label that counts") {
  const Golden golden = read_golden(MEGATRON_GOLDEN_FOLDER "/tiny_bert.h5");
  const auto loss_with = [&](const auto& change) {
    Golden changed = golden;
    change(changed.batch);
    return compute(changed, {}).terms;
  };
  const auto seeing = loss_with([](GoldenBatch& batch) { ++batch.lengths[1]; });
  CHECK(std::abs(seeing[0] - golden.loss_terms[0]) > 100 * kTolerance * golden.loss_terms[0]);
  const auto typed = loss_with([](GoldenBatch& batch) { batch.types[3] = 1; });
  CHECK(std::abs(typed[0] - golden.loss_terms[0]) > 100 * kTolerance * golden.loss_terms[0]);
  const auto labelled = loss_with([](GoldenBatch& batch) { batch.labels[1] = 0; });
  CHECK(labelled[0] == Approx(golden.loss_terms[0]).epsilon(kTolerance));
  CHECK(std::abs(labelled[1] - golden.loss_terms[1]) > 0.01);
}
