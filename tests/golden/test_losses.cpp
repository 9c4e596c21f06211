// Documents and losses against PyTorch's autograd (scripts/golden/make_loss_golden.py): from token ids to gradients,
// through the reader of samples and the whole model, on one rank and on layouts.
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "backend/ops/backends.h"
#include "data/samples/batches.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "golden/golden_file.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/datasets/losses.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const Golden& model() {
  static const Golden file = read_golden(MEGATRON_GOLDEN_FOLDER "/tiny_gpt.h5");
  return file;
}

const nlohmann::json& golden_losses() {
  static const nlohmann::json file = [] {
    std::ifstream in(MEGATRON_GOLDEN_FOLDER "/losses.json");
    return nlohmann::json::parse(in);
  }();
  return file;
}

/// The texts as token source and as order: sample i is the i-th.
class Texts final : public TokenSource, public SampleOrder {
 public:
  Texts() : SampleOrder(model().config.model.sequence_length), texts_(golden_losses().at("texts")) {}
  std::uint64_t tokens() const override { return texts_.size() * length(); }
  std::uint64_t samples() const override { return texts_.size(); }
  std::string description() const override { return "golden texts"; }
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override {
    for (std::uint64_t i = first; i < first + count; ++i) *ids++ = texts_[i / length()][i % length()];
  }
  void locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const override {
    ranges = {{sample * length(), length()}};
  }

 private:
  std::uint64_t length() const { return sequence_length_ + 1; }
  std::vector<std::vector<std::int32_t>> texts_;
};

struct LossLayout {
  int tensor = 1, pipeline = 1, micro_batch = 3;
};

Config config_of(const nlohmann::json& c, const LossLayout& layout) {
  Config config = model().config;
  config.data.reset_attention_mask = c.contains("reset_attention_mask");
  config.data.reset_position_ids = c.contains("reset_position_ids");
  config.data.eod_mask_loss = c.contains("eod_mask_loss");
  config.loss.name = c.at("loss");
  if (c.contains("token_ids")) {
    config.loss.token_ids = c.at("token_ids").get<std::vector<std::int64_t>>();
    config.loss.alpha = c.at("alpha");
  }
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.train.micro_batch_size = layout.micro_batch;
  return config;
}

struct LossResults {
  double loss = 0, gradient_norm = 0;
  NamedValues gradients;
};

LossResults compute_losses(const Config& config) {
  LossResults results;
  std::mutex mutex;
  const auto tensor = static_cast<int>(config.parallel.tensor), pipeline = static_cast<int>(config.parallel.pipeline);
  run_as_threads(tensor * pipeline, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    CheckedCollectives checks(grid, *backend.device);
    Replica replica(config, grid, backend);
    set_values(replica.store(), model().parameters);
    Texts texts;
    const std::int32_t end = golden_losses().at("end_of_document");
    NextTokenSamples samples(texts, texts, end, training_weights(config, end));
    BatchReader reader(
        samples, used_layout(batch_layout(config), samples), {.most_samples = config.train.global_batch_size},
        [&](std::int64_t step) {
          return GlobalBatch{0, step == 0 ? config.train.global_batch_size : 0};
        },
        0);
    const StepBatch& batch = reader.next();
    Timers timers;
    const StepSums sums = replica.forward_backward(batch.micro_batches, 1, {.counts = batch.loss_counts}, timers);
    {
      const std::lock_guard lock(mutex);
      for (const Parameter& parameter : replica.store().all()) {
        if (parameter.owner) assemble(parameter, parameter.gradient, results.gradients);
      }
    }
    const Replica::Update update = replica.update(sums, {}, timers);
    checks.finish();
    if (world.rank() != 0) return;
    results.loss = update.loss.total;
    results.gradient_norm = update.gradient_norm;
  });
  return results;
}

double product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

}  // namespace

TEST_CASE("losses, and losses over documents, are PyTorch's: values and gradients") {
  const LossLayout layout = GENERATE(LossLayout{}, LossLayout{1, 1, 1}, LossLayout{2, 3, 1});
  REQUIRE(golden_losses().at("cases").size() == 7);
  for (const nlohmann::json& c : golden_losses().at("cases")) {
    const Config config = config_of(c, layout);
    INFO("tensor " << layout.tensor << " pipeline " << layout.pipeline << ", " << config.loss.name << ", "
                   << c.at("value"));
    const LossResults results = compute_losses(config);
    CHECK(results.loss == Approx(c.at("value").get<double>()).epsilon(kGoldenTolerance));
    CHECK(results.gradient_norm == Approx(c.at("gradient_norm").get<double>()).epsilon(kGoldenTolerance));
    REQUIRE(results.gradients.size() == c.at("gradients").size());
    for (const auto& [name, gradient] : results.gradients) {
      INFO(name);
      const nlohmann::json& want = c.at("gradients").at(name);
      std::string judged_by = name;  // a key bias' gradient is zero in exact arithmetic
      if (const auto key = name.find("key.bias"); key != std::string::npos) judged_by.replace(key, 8, "query.bias");
      const double size = c.at("gradients").at(judged_by).at("norm");
      const std::vector<float>& values = model().parameters.at(name);
      CHECK(std::sqrt(product(gradient, gradient)) ==
            Approx(want.at("norm").get<double>()).epsilon(kGoldenTolerance).margin(kGoldenTolerance * size));
      CHECK(product(gradient, values) == Approx(want.at("along_value").get<double>())
                                             .margin(kGoldenTolerance * size * std::sqrt(product(values, values))));
    }
  }
}
