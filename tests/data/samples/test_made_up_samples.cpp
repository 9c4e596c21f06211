// Batches of samples that are no range of tokens, of fields of every shape and of two streams.
#include <atomic>
#include <sstream>

#include "data/samples/batches.h"
#include "support/catch.h"

using namespace megatron;

namespace {

constexpr std::int64_t kRows = 5, kEncoderRows = 3, kColumns = 2;

BatchLayout made_up_layout() {
  return {.fields = {{.name = "tokens", .view = &Rows::tokens},
                     {.name = "positions",
                      .view = &Rows::positions,
                      .shape = FieldShape::rows,
                      .source = FieldSource::row_numbers},
                     {.name = "encoder tokens", .view = &Rows::tokens, .stream = Stream::encoder},
                     {.name = "encoder starts",
                      .view = &Rows::document_starts,
                      .stream = Stream::encoder,
                      .shape = FieldShape::samples_by_rows},
                     {.name = "labels", .view = &Rows::targets, .shape = FieldShape::samples},
                     {.name = "weights", .view = &Rows::weights, .type = DType::f32}},
          .sizes = {.rows = {kRows, kEncoderRows}, .samples = kColumns}};
}

std::int32_t number(std::uint64_t sample, int field, std::int64_t row) {
  return static_cast<std::int32_t>(1000 * sample + 100 * static_cast<std::uint64_t>(field)) +
         static_cast<std::int32_t>(row);
}

/// Pairs of texts with a label; two terms of the loss, of which the second counts even samples only.
class Pairs final : public Samples {
 public:
  std::uint64_t samples() const override { return 100; }
  std::string description() const override { return "pairs"; }
  std::size_t terms() const override { return 2; }
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override {
    place(to.of<std::int32_t>(&Rows::tokens), sample, 1);
    place(to.of<std::int32_t>(&Rows::tokens, Stream::encoder), sample, 2);
    place(to.of<std::int32_t>(&Rows::document_starts, Stream::encoder), sample, 3);
    place(to.of<std::int32_t>(&Rows::targets), sample, 4);
    place(to.of<float>(&Rows::weights), sample, 5);
    // Positions are row numbers, and the layout lacks position_ids. Called on the reader's thread: no CHECK here.
    if (to.of<std::int32_t>(&Rows::positions) || to.of<std::int32_t>(&Rows::position_ids)) extra_fields_ = true;
    counts[0] += static_cast<double>(sample);
    counts[1] += sample % 2 == 0 ? 1 : 0;
  }
  std::optional<double> count_per_sample(const BatchSizes& /*sizes*/) const override { return {}; }
  std::vector<NamedTokens> show(std::uint64_t sample) override {
    return {{"tokens", {number(sample, 1, 0)}}, {"encoder", {number(sample, 2, 0)}}};
  }

  bool extra_fields() const { return extra_fields_; }

 private:
  std::atomic<bool> extra_fields_ = false;

  template <class T>
  static void place(const Column<T>& to, std::uint64_t sample, int field) {
    for (std::int64_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(number(sample, field, i));
  }
};

}  // namespace

TEST_CASE("made-up samples: every field arrives, whatever its shape and stream") {
  Pairs pairs;
  const BatchPlan plan = [](std::int64_t step) {
    return GlobalBatch{.first_sample = static_cast<std::uint64_t>(8 * step),
                       .samples = step < 2 ? 8 : 0,
                       .sequence = step == 0 ? 4 : 0,
                       .padding = step == 0 ? 0 : 3};
  };
  std::vector<double> sums(2);
  for (int rank = 0; rank < 2; ++rank) {
    BatchReader batches(pairs, made_up_layout(), {.most_samples = 8, .data_rank = rank, .data_size = 2}, plan, 0);
    for (std::uint64_t step = 0; step < 2; ++step) {
      const std::int64_t rows = step == 0 ? 4 : kRows;
      const StepBatch& batch = batches.next();
      REQUIRE(batch.micro_batches.size() == 2);
      if (step == 1) {
        for (std::size_t term = 0; term < 2; ++term) sums[term] += batch.loss_counts.at(term);
      }
      for (const MicroBatch& micro : batch.micro_batches) {
        CHECK(micro.main.sequence == rows);
        CHECK(micro.encoder.sequence == kEncoderRows);
        REQUIRE(micro.main.targets.shape() == Shape{kColumns});
        REQUIRE(micro.encoder.document_starts.shape() == Shape{kColumns, kEncoderRows});
        for (std::int64_t j = 0; j < kColumns; ++j) {
          const std::uint64_t sample = 8 * step + static_cast<std::uint64_t>(micro.first_sample + j);
          const bool counts = step == 0 || micro.first_sample + j < 5;
          CHECK(micro.main.targets.as<std::int32_t>()[j] == number(sample, 4, 0));
          for (std::int64_t i = 0; i < rows; ++i) {
            CHECK(micro.main.positions.as<std::int32_t>()[i] == i);
            CHECK(micro.main.tokens.as<std::int32_t>()[i * kColumns + j] == number(sample, 1, i));
            const float weight = counts ? static_cast<float>(number(sample, 5, i)) : 0.0f;
            CHECK(micro.main.weights.as<float>()[i * kColumns + j] == weight);
          }
          for (std::int64_t i = 0; i < kEncoderRows; ++i) {
            CHECK(micro.encoder.tokens.as<std::int32_t>()[i * kColumns + j] == number(sample, 2, i));
            CHECK(micro.encoder.document_starts.as<std::int32_t>()[j * kEncoderRows + i] == number(sample, 3, i));
          }
        }
      }
    }
  }
  CHECK_FALSE(pairs.extra_fields());
  CHECK(sums == std::vector<double>{8 + 9 + 10 + 11 + 12, 3});  // without the three of padding
}

TEST_CASE("made-up samples: printed with all that they show") {
  Pairs pairs;
  std::ostringstream out;
  print_samples(pairs, 3, 1, {}, out);
  CHECK(out.str() == "{\"sample\":3,\"tokens\":[3100],\"encoder\":[3200]}\n");
}
