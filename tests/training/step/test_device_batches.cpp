// The samples that each rank makes and the fields it uploads: what its stages read, and what only reading tells.
#include "training/step/device_batches.h"

#include <atomic>
#include <cstring>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Tokens are the sample's number, targets one more.
class Numbers final : public Samples {
 public:
  explicit Numbers(bool uniform) : uniform_(uniform) {}
  std::uint64_t samples() const override { return 100; }
  std::string description() const override { return "numbers"; }
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override {
    ++made_;
    const Column<std::int32_t> tokens = to.of<std::int32_t>(&Rows::tokens);
    const Column<std::int32_t> targets = to.of<std::int32_t>(&Rows::targets);
    const Column<float> weights = to.of<float>(&Rows::weights);
    for (std::int64_t i = 0; i < to.rows(); ++i) {
      tokens[i] = static_cast<std::int32_t>(sample);
      targets[i] = static_cast<std::int32_t>(sample) + 1;
      if (weights) weights[i] = 1;
    }
    counts[0] += static_cast<double>(to.rows());
  }
  std::optional<double> count_per_sample(const BatchSizes& sizes) const override {
    if (!uniform_) return std::nullopt;
    return static_cast<double>(sizes.rows_of(Stream::main));
  }
  std::vector<NamedTokens> show(std::uint64_t /*sample*/) override { return {}; }
  int made() const { return made_; }

 private:
  bool uniform_;
  std::atomic<int> made_ = 0;
};

/// The first step of a rank whose stages read the fields of one reader, or of none: five samples and three of padding.
void first_step(Numbers& samples, std::optional<FieldReader> reader,
                const std::function<void(const DeviceBatches&, std::span<const MicroBatch>)>& check) {
  const Config config = tiny_config();
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, GridShape{});
    Backend backend = make_cpu_backend();
    BatchMemory memory(batch_layout(config), micro_batches_per_step(config), *backend.device);
    const BatchLayout& layout = memory.buffer().layout();
    for (const BatchField& field : layout.fields) {
      if (field.source == FieldSource::sample) std::memset(memory.buffer().at(field, 0), -1, layout.bytes(field));
    }
    const BatchPlan plan = [](std::int64_t step) {
      return step == 0 ? GlobalBatch{.first_sample = 40, .samples = 8, .padding = 3} : GlobalBatch{};
    };
    DeviceBatches batches(config, grid, memory, samples, plan, /*padded=*/true,
                          [&](const BatchField& field) { return field.reader == reader; });
    const std::span<const MicroBatch> micro_batches = batches.next();
    check(batches, micro_batches);
  });
}

}  // namespace

TEST_CASE("device batches: a rank that reads no field makes no samples") {
  Numbers samples(/*uniform=*/true);
  first_step(samples, std::nullopt, [](const DeviceBatches& batches, std::span<const MicroBatch>) {
    CHECK(batches.loss_counts().values[0] == 5 * 16);  // padding does not count
  });
  CHECK(samples.made() == 0);
}

TEST_CASE("device batches: a count that only samples tell is read on every rank") {
  Numbers samples(/*uniform=*/false);
  first_step(samples, std::nullopt, [](const DeviceBatches& batches, std::span<const MicroBatch>) {
    CHECK(batches.loss_counts().values[0] == 5 * 16);
    CHECK_FALSE(batches.loss_counts().complete);
  });
  CHECK(samples.made() == 8);
}

TEST_CASE("device batches: only the fields that a rank's stages read are uploaded") {
  for (const FieldReader reader : {FieldReader::embedding, FieldReader::head}) {
    Numbers samples(/*uniform=*/true);
    first_step(samples, reader, [&](const DeviceBatches&, std::span<const MicroBatch> micro_batches) {
      REQUIRE(micro_batches.size() == 8);
      const bool head = reader == FieldReader::head;
      const MicroBatch& first = micro_batches[0];
      CHECK(first.main.tokens.as<std::int32_t>()[0] == (head ? -1 : 40));
      CHECK(first.main.targets.as<std::int32_t>()[0] == (head ? 41 : -1));
      if (head) {
        CHECK(first.main.weights.as<float>()[0] == 1);
        CHECK(micro_batches[5].main.weights.as<float>()[0] == 0);
      }
      CHECK(first.main.positions.as<std::int32_t>()[3] == 3);
    });
    CHECK(samples.made() == 8);
  }
}
