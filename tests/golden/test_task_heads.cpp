// Heads of tasks on BERT against PyTorch's autograd in float64: scores, loss and every gradient, of labels and of
// multiple choice, on one rank and on layouts. The script that made the files compares its formulas with transformers'
// models.
#include <cmath>
#include <mutex>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "golden/golden_file.h"
#include "golden/golden_micro_batches.h"
#include "golden/golden_step.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"
#include "training/step/label_scores.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct TaskLayout {
  int tensor = 1, pipeline = 1;
  std::int64_t micro_batch = 1;
  const char* schedule = "1f1b";
  bool sequence = false;
};

struct TaskResults {
  GoldenStep step;
  double evaluated = 0;
  std::vector<float> scores;
  LabelCounts counts;
};

Golden golden_of(bool labels) {
  Golden golden =
      read_golden(MEGATRON_GOLDEN_FOLDER "/" + std::string(labels ? "tiny_labels" : "tiny_choices") + ".h5");
  golden.config.task.name = labels ? "classification" : "multiple_choice";
  golden.config.model.task_outputs = labels ? 3 : 1;
  golden.config.model.task_choices = labels ? 1 : 3;
  golden.config.train.global_batch_size = labels ? 3 : 2;
  return golden;
}

double labelled(const GoldenBatch& batch) {
  return static_cast<double>(std::count_if(batch.labels.begin(), batch.labels.end(), [](int l) { return l >= 0; }));
}

TaskResults compute_task(const Golden& golden, const TaskLayout& layout) {
  Config config = golden.config;
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.schedule = layout.schedule;
  config.train.micro_batch_size = layout.micro_batch;
  TaskResults results;
  std::mutex mutex;
  run_as_threads(layout.tensor * layout.pipeline, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    CheckedCollectives checks(grid, *backend.device);
    Replica replica(config, grid, backend);
    set_values(replica.store(), golden.parameters);
    const GoldenMicroBatches micro_batches(config, golden.batch);
    const std::vector<double> counts = {labelled(golden.batch)};
    Timers timers;
    LabelScores scores(grid, *backend.device, batch_layout(config).sizes, config.model.task_classes(),
                       micro_batches_per_step(config));
    const auto wanted = scores.results(micro_batches.list().size());
    const Losses evaluated = replica.evaluate(micro_batches.list(), counts, timers, wanted);
    scores.add(micro_batches.list());
    const LabelCounts right = scores.sum();
    const StepSums sums = replica.forward_backward(micro_batches.list(), 1, {.counts = counts}, timers);
    {
      const std::lock_guard lock(mutex);
      for (const Parameter& parameter : replica.store().all()) {
        if (parameter.owner) assemble(parameter, parameter.gradient, results.step.gradients);
      }
      if (grid.last_stage() && grid.at().tensor == 0) {
        for (const TargetResults& result : wanted) {
          const auto* const first = static_cast<const float*>(result.scores.data());
          results.scores.insert(results.scores.end(), first, first + result.scores.elements());
        }
      }
    }
    const double loss = evaluated.total;
    const Replica::Update update = replica.update(sums, {}, timers);
    checks.finish();
    if (world.rank() != 0) return;
    results.evaluated = loss;
    results.counts = right;
    results.step.loss = update.loss.total;
    results.step.gradient_norm = update.gradient_norm;
  });
  return results;
}

/// Counts of each label by the golden scores.
LabelCounts counts_of(const Golden& golden) {
  const auto classes = static_cast<std::size_t>(golden.config.model.task_classes());
  LabelCounts counts{std::vector<std::int64_t>(classes), std::vector<std::int64_t>(classes),
                     std::vector<std::int64_t>(classes)};
  for (std::size_t i = 0; i < golden.batch.labels.size(); ++i) {
    if (golden.batch.labels[i] < 0) continue;
    const auto row = golden.scores.begin() + static_cast<std::ptrdiff_t>(i * classes);
    const auto chosen =
        static_cast<std::size_t>(std::max_element(row, row + static_cast<std::ptrdiff_t>(classes)) - row);
    const auto label = static_cast<std::size_t>(golden.batch.labels[i]);
    ++counts.examples[label];
    ++counts.chosen[chosen];
    counts.right[label] += chosen == label ? 1 : 0;
  }
  return counts;
}

}  // namespace

TEST_CASE("task heads: scores and loss and gradients are PyTorch's on layouts") {
  const bool labels = GENERATE(true, false);
  const Golden golden = golden_of(labels);
  const std::int64_t all = golden.config.train.global_batch_size;
  for (const TaskLayout& layout : {TaskLayout{}, TaskLayout{1, 1, all}, TaskLayout{2, 1, all}, TaskLayout{4, 2, 1},
                                   TaskLayout{1, 2, 1, "zero_bubble"}, TaskLayout{2, 2, 1, "1f1b"}}) {
    CAPTURE(labels, layout.tensor, layout.pipeline, layout.micro_batch, layout.schedule);
    const TaskResults results = compute_task(golden, layout);
    check_golden_step(golden, results.step, kGoldenTolerance);
    CHECK(results.evaluated == Approx(golden.loss).epsilon(kGoldenTolerance));
    REQUIRE(results.scores.size() == golden.scores.size());
    for (std::size_t i = 0; i < golden.scores.size(); ++i) {
      CHECK(results.scores[i] == Approx(golden.scores[i]).epsilon(kGoldenTolerance).margin(kGoldenTolerance));
    }
    const LabelCounts counts = counts_of(golden);
    CHECK(results.counts.examples == counts.examples);
    CHECK(results.counts.right == counts.right);
    CHECK(results.counts.chosen == counts.chosen);
  }
}

TEST_CASE("task heads: the golden files notice another label or choice") {
  const Golden labels = golden_of(true), choices = golden_of(false);
  Golden changed = labels;
  changed.batch.labels[2] = 1;
  CHECK(std::abs(compute_task(changed, {}).step.loss - labels.loss) > 0.01);
  changed = choices;
  changed.batch.labels[0] = 0;
  CHECK(std::abs(compute_task(changed, {}).step.loss - choices.loss) > 0.01);
  // A sequence longer by a token that is padding.
  changed = choices;
  ++changed.batch.lengths[3];
  CHECK(std::abs(compute_task(changed, {}).step.loss - choices.loss) > 1e-4);
}
