// Documents within samples: where they begin, and what micro-batches say of them, whatever the number of data ranks.
#include "base/core/philox.h"
#include "support/catch.h"
#include "support/token_batches.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int32_t kEnd = 3;

std::int32_t token_at(std::uint64_t i) {
  return static_cast<std::int32_t>(philox4x32<7>({static_cast<std::uint32_t>(i), 0, 0, 0}, 5)[0] % 9);
}

class RandomTokens final : public TokenSource {
 public:
  std::uint64_t tokens() const override { return 2000; }
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override {
    for (std::uint64_t i = 0; i < count; ++i) ids[i] = token_at(first + i);
  }
};

std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> starts(tokens.size());
  find_document_starts(tokens, kEnd, starts);
  return starts;
}

// Twice the number of inputs that are above 4 as the count, and tokens' own values as weights.
double odd_weights(std::span<const std::int32_t> tokens, std::span<float> weights) {
  double count = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(tokens[i] + 10 * tokens[i + 1]);
    count += tokens[i] > 4 ? 2 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("a document begins after the end of the one before, which keeps its end", "[documents]") {
  CHECK(starts_of({1, 2, 4}) == std::vector<std::int32_t>{0, 0, 0});
  CHECK(starts_of({1, 3, 4, 5, 3, 6}) == std::vector<std::int32_t>{0, 0, 2, 2, 2, 5});
  CHECK(starts_of({3, 3, 1, 3}) == std::vector<std::int32_t>{0, 1, 2, 2});
  // As Megatron-LM's matrix has it: for every end at i, rows from i + 1 on do not see columns up to i.
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < 300; ++i) tokens.push_back(token_at(i));
  const std::vector<std::int32_t> starts = starts_of(tokens);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (std::size_t column = 0; column <= row; ++column) {
      const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(row);
      const bool cut = std::find(tokens.begin() + static_cast<std::ptrdiff_t>(column), end, kEnd) != end;
      REQUIRE((static_cast<std::int32_t>(column) >= starts[row]) == !cut);
    }
  }
}

TEST_CASE("documents: micro-batches match their tokens for any number of ranks", "[documents]") {
  const std::int64_t d = GENERATE(1, 2, 3), b = GENERATE(1, 2);
  const std::int64_t sequence = GENERATE(16, 9);  // the second as a curriculum has it
  CAPTURE(d, b, sequence);
  RandomTokens source;
  const EpochOrder order(0, source.tokens(), 16, 1, EpochOrder::Kind::shuffled);
  const BatchPlan plan = [&](std::int64_t step) { return GlobalBatch{12, step < 1 ? 12 : 0, sequence}; };
  double count = 0, expected_count = 0;
  std::vector<bool> seen(12);
  SampleReader reader(source, order);
  for (int rank = 0; rank < d; ++rank) {
    TokenBatches batches(source, order, {b, 12, rank, static_cast<int>(d)}, plan, 0, {true, true, kEnd, odd_weights});
    const StepBatch& batch = batches.next();
    count += batch.loss_counts[0];
    for (const MicroBatch& micro : batch.micro_batches) {
      REQUIRE(micro.main.document_starts.shape() == Shape{b, sequence});
      REQUIRE(micro.main.position_ids.shape() == Shape{sequence, b});
      REQUIRE(micro.main.weights.shape() == Shape{sequence, b});
      for (std::int64_t j = 0; j < b; ++j) {
        const auto sample = static_cast<std::size_t>(micro.first_sample + j);
        seen[sample] = true;
        const auto tokens = reader.read(12 + sample).first(static_cast<std::size_t>(sequence + 1));
        const std::vector<std::int32_t> starts = starts_of({tokens.begin(), tokens.end() - 1});
        std::vector<float> weights(starts.size());
        expected_count += odd_weights(tokens, weights);
        for (std::int64_t i = 0; i < sequence; ++i) {
          const auto at = static_cast<std::size_t>(i);
          REQUIRE(micro.main.tokens.as<std::int32_t>()[i * b + j] == tokens[at]);
          REQUIRE(micro.main.targets.as<std::int32_t>()[i * b + j] == tokens[at + 1]);
          REQUIRE(micro.main.document_starts.as<std::int32_t>()[j * sequence + i] == starts[at]);
          REQUIRE(micro.main.position_ids.as<std::int32_t>()[i * b + j] == i - starts[at]);
          REQUIRE(micro.main.weights.as<float>()[i * b + j] == weights[at]);
        }
      }
    }
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](bool is) { return is; }));
  CHECK(count == expected_count);
  CHECK(count > 0);
}

TEST_CASE("documents: without documents or weights every target counts", "[documents]") {
  RandomTokens source;
  const EpochOrder order(0, source.tokens(), 16, 1, EpochOrder::Kind::shuffled);
  TokenBatches batches(
      source, order, {2, 4, 0, 1},
      [](std::int64_t step) {
        return GlobalBatch{0, step < 1 ? 4 : 0};
      },
      0);
  const StepBatch& batch = batches.next();
  CHECK(batch.loss_counts[0] == 4 * 16);
  CHECK(batch.micro_batches[0].main.document_starts.empty());
  CHECK(batch.micro_batches[0].main.position_ids.empty());
  CHECK(batch.micro_batches[0].main.weights.empty());
}
