#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/ops/ops_decorator.h"
#include "planning/bench/comparisons.h"
#include "planning/bench/training_job.h"

namespace megatron {

namespace {

constexpr std::int64_t kHeadSize = 32;

double mean_size(ConstTensor x) {
  const auto* const numbers = x.as<float>();
  double sum = 0;
  for (std::int64_t i = 0; i < x.elements(); ++i) sum += std::abs(static_cast<double>(numbers[i]));
  return sum / static_cast<double>(x.elements());
}

/// Sizes of a forward pass through a pre-norm decoder.
struct Sizes {
  double embedding = 0, logits = 0;
  std::vector<double> parts;  ///< attention and feed-forward part of each layer, before the residual is added
};

/// Operations of the CPU that note sizes, from one call of take() to the next of a single pass.
class CoordinateOps final : public OpsDecorator {
 public:
  using OpsDecorator::OpsDecorator;

  // The first norm reads the embedding.
  void layer_norm_forward(const LayerNormForwardArgs& args) override {
    if (sizes_.embedding == 0) sizes_.embedding = mean_size(args.x);
    OpsDecorator::layer_norm_forward(args);
  }
  void dropout_add_forward(const DropoutAddForwardArgs& args) override {
    sizes_.parts.push_back(mean_size(args.x));
    OpsDecorator::dropout_add_forward(args);
  }
  void cross_entropy_local(const CrossEntropyLocalArgs& args) override {
    sizes_.logits = mean_size(args.logits);
    OpsDecorator::cross_entropy_local(args);
  }

  Sizes take() { return std::exchange(sizes_, {}); }

 private:
  void pass(const char*, const std::function<void()>& call) override { call(); }

  Sizes sizes_;
};

Sizes sizes_after_training(const Config& config, int steps, Communicator& world) {
  Compute compute = cpu_compute();
  CoordinateOps* const measuring = put_around<CoordinateOps>(compute.backend);
  TrainingJob job(config, std::move(compute), world);
  job.run(steps);
  measuring->take();
  job.run(1);
  return measuring->take();
}

}  // namespace

Report measure_coordinates(const CoordinatesCase& benchmark, Communicator& world) {
  std::vector<ReportColumn> columns = {{"scaling", "scaling"}, {"width", "width"}, {"embedding", "embedding", 4}};
  for (std::int64_t layer = 0; layer < benchmark.layers; ++layer) {
    for (const char* part : {"attention", "mlp"}) {
      columns.push_back({fmt::format("{} {}", part, layer), fmt::format("{}_{}", part, layer), 4});
    }
  }
  columns.push_back({"logits", "logits", 4});
  std::vector<Row> rows;
  for (const auto& scaling : kScalings) {
    for (const std::int64_t width : benchmark.widths) {
      const ModelConfig model = gpt(benchmark.layers, width, std::max<std::int64_t>(1, width / kHeadSize), 32, 128);
      const Config config = training_config(model, 4, [&](Config& edited) {
        edited.learning_rate.peak = benchmark.learning_rate;
        edited.optimizer.clip_grad_norm = 0;
        edited.optimizer.scaling = scaling.name;
        if (scaling.kind != Scaling::none) edited.model.base_hidden_size = benchmark.widths.front();
        if (benchmark.edit) benchmark.edit(edited);
      });
      const Sizes sizes = sizes_after_training(config, benchmark.steps, world);
      Row& row = rows.emplace_back(Row{scaling.name, width, sizes.embedding});
      row.insert(row.end(), sizes.parts.begin(), sizes.parts.end());
      row.emplace_back(sizes.logits);
    }
  }
  return table("coordinates",
               fmt::format("mean |x| after {} steps at rate {}: a decoder of {} layers, from the width {} on",
                           benchmark.steps, benchmark.learning_rate, benchmark.layers, benchmark.widths.front()),
               columns, rows);
}

}  // namespace megatron
