// A loss of two terms, the second added in the middle of the pipeline: a made-up family on GPT's stages.
#include <cmath>
#include <limits>
#include <mutex>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kPenalisedStage = 1;
constexpr double kCoefficient = 0.3, kPerSample = 16;

/// Adds the squares of what the stage within sends, as term 1.
class PenalisedStage final : public Stage {
 public:
  struct Saved final : StageSaved {
    std::unique_ptr<StageSaved> inner;
    Tensor sent;
  };

  explicit PenalisedStage(std::unique_ptr<Stage> inner) : inner_(std::move(inner)) {}

  std::span<const Link> receives() const override { return inner_->receives(); }
  std::span<const Link> sends() const override { return inner_->sends(); }
  bool reads(const BatchField& field) const override { return inner_->reads(field); }
  std::unique_ptr<StageSaved> make_saved() const override {
    auto saved = std::make_unique<Saved>();
    saved->inner = inner_->make_saved();
    return saved;
  }

  void forward(Context& context, const StageData& in, const StageData& out, StageSaved& stage_saved) const override {
    auto& saved = static_cast<Saved&>(stage_saved);
    inner_->forward(context, in, out, *saved.inner);
    saved.sent = context.saved->allocate("sent", out[0].shape(), out[0].dtype());
    context.ops.copy(out[0], saved.sent);
    context.ops.square_sum({.x = saved.sent, .total = context.loss_sum(1)});
  }

  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const override {
    auto& saved = static_cast<Saved&>(stage_saved);
    context.ops.scale(saved.sent, 2 * context.gradient_scale(1));
    context.ops.add(saved.sent, dout[0]);
    inner_->backward(context, dout, din, *saved.inner);
  }

  void backward_weight(Context& context, DeferredWeightGradients& work, StageSaved& stage_saved) const override {
    inner_->backward_weight(context, work, *static_cast<Saved&>(stage_saved).inner);
  }

 private:
  std::unique_ptr<Stage> inner_;
};

Stages penalised_stages(const Config& config, const ProcessGrid& grid, const TensorRegion& region,
                        ParameterStore& store) {
  Stages stages = make_stages(config, grid, region, store);
  if (grid.at().pipeline == kPenalisedStage) stages[0] = std::make_unique<PenalisedStage>(std::move(stages[0]));
  return stages;
}

LossTerms two_terms(const Config& config) {
  return {{.name = config.loss.name}, {.name = "penalty", .coefficient = kCoefficient, .per_sample = kPerSample}};
}

struct Result {
  std::vector<double> terms;
  double total = 0, norm = 0, slope = 0;
};

/// One step on a layout, and the loss' slope along the gradient by finite differences.
Result play(const GridShape& shape, const std::string& schedule) {
  Config config = tiny_config();
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.parallel.tensor = shape.tensor;
  config.parallel.data = shape.data;
  config.parallel.pipeline = shape.pipeline;
  config.parallel.schedule = schedule;
  ModelFamily family = family_of(config.model);
  family.make_stages = penalised_stages;
  family.loss_terms = two_terms;
  Result result;
  std::mutex mutex;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend(1);
    Replica replica(config, grid, backend, family);
    TinyBatches batches(config, grid.data().rank());
    Timers timers;
    const std::span<const MicroBatch> micro_batches = batches.step(1);
    const double counts[] = {batches.targets(), kPerSample * 8};
    const StepSums sums = replica.forward_backward(micro_batches, 1, {.counts = counts}, timers);
    const Replica::Update update = replica.update(sums, {}, timers);
    Result mine{{update.loss.terms.begin(), update.loss.terms.end()}, update.loss.total, update.gradient_norm, 0};
    replica.wait_for_values();
    const std::vector<TensorSlice> values = replica.all_slices(false), gradients = replica.summed_gradients();
    const auto move = [&](double step) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (std::int64_t k = 0; k < values[i].count; ++k) {
          values[i].value.as<float>()[k] +=
              static_cast<float>(step / mine.norm * static_cast<double>(gradients[i].value.as<float>()[k]));
        }
      }
      replica.optimizer().set_values_from_master();
      return replica.evaluate(micro_batches, counts, timers).total;
    };
    constexpr double step = 2e-3;
    const double above = move(step), below = move(-2 * step);
    mine.slope = (above - below) / (2 * step);
    const std::lock_guard lock(mutex);
    CHECK_FALSE(update.skipped);
    if (result.terms.empty()) result = mine;
    CHECK(result.terms == mine.terms);  // the same on every rank
  });
  return result;
}

}  // namespace

TEST_CASE("two terms of the loss: sums and gradients on every layout") {
  const Result expected = play({.tensor = 1, .data = 1, .pipeline = 4}, "1f1b");
  REQUIRE(expected.terms.size() == 2);
  CHECK(expected.terms[0] == Approx(std::log(50)).epsilon(0.2));
  CHECK(expected.terms[1] > 0);
  for (const std::string schedule : {"1f1b", "zero_bubble"}) {
    for (const GridShape& shape :
         {GridShape{.tensor = 1, .data = 1, .pipeline = 4}, GridShape{.tensor = 2, .data = 1, .pipeline = 4},
          GridShape{.tensor = 1, .data = 2, .pipeline = 4}}) {
      CAPTURE(schedule, shape.tensor, shape.data);
      const Result result = play(shape, schedule);
      CHECK(result.total == Approx(result.terms[0] + kCoefficient * result.terms[1]).epsilon(1e-12));
      CHECK(result.terms[0] == Approx(expected.terms[0]).epsilon(1e-5));
      CHECK(result.terms[1] == Approx(expected.terms[1]).epsilon(1e-5));
      CHECK(result.norm == Approx(expected.norm).epsilon(1e-4));
      CHECK(result.slope == Approx(result.norm).epsilon(1e-2));
    }
  }
}
