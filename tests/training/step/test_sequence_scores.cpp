// How ranks share out what is to be scored: without a model, which is played by what fills its results.
#include <mutex>
#include <numeric>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "models/families/family.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/sequence_scores.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// By data rank: the rows of each micro-batch of each pass.
std::vector<std::vector<std::int64_t>> rows_played(const GridShape& shape, const std::vector<ScoredSequence>& sequences,
                                                   std::vector<TargetScore>& scores) {
  Config config = tiny_config();
  config.train.micro_batch_size = 2;
  config.model.sequence_length = config.model.max_position_embeddings = 20;
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(shape.data));
  std::mutex mutex;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    constexpr std::int64_t micro_batches = 2;
    const BatchBuffer buffer(family_of(config.model).batch_layout(config), micro_batches, *backend.device);
    SequenceScores sharing(grid, *backend.device, {.buffer = &buffer, .micro_batches = micro_batches});
    const auto play = [&](std::span<const MicroBatch> batches, std::span<const TargetResults> results) {
      for (std::size_t k = 0; k < batches.size(); ++k) {
        const Rows& main = batches[k].main;
        for (std::int64_t i = 0; i < main.targets.elements(); ++i) {  // a loss that tells which target it is of
          results[k].losses.as<float>()[i] = static_cast<float>(main.targets.as<std::int32_t>()[i]);
        }
        backend.ops->fill(results[k].maximum, 0);
        backend.ops->fill(results[k].target_logit, 0);
        const std::lock_guard lock(mutex);
        rows[static_cast<std::size_t>(grid.at().data)].push_back(main.sequence);
      }
    };
    const auto all = sharing.score(sequences, play, nullptr);
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) scores = all.value();
  });
  return rows;
}

}  // namespace

TEST_CASE("sequence scores: ranks that share experts play equal micro-batches", "[train]") {
  // 19 sequences of 2 to 20 tokens, two a micro-batch.
  std::vector<std::int32_t> tokens(20);
  std::iota(tokens.begin(), tokens.end(), 1);
  std::vector<ScoredSequence> sequences;
  for (std::size_t length = 2; length <= 20; ++length) sequences.push_back({std::span(tokens).first(length)});
  const auto require_all = [](const std::vector<TargetScore>& scores) {
    REQUIRE(scores.size() == 19 * 20 / 2);
    std::size_t at = 0;
    for (int length = 2; length <= 20; ++length) {
      for (int target = 2; target <= length; ++target) CHECK(scores[at++].log_probability == -target);
    }
  };
  std::vector<TargetScore> scores;
  using Lengths = std::vector<std::vector<std::int64_t>>;
  CHECK(rows_played({.data = 4}, sequences, scores) == Lengths{{19, 11, 3}, {17, 9, 1}, {15, 7, 1}, {13, 5, 1}});
  require_all(scores);
  CHECK(rows_played({.data = 4, .expert = 2}, sequences, scores) ==
        Lengths{{19, 11, 3}, {19, 11, 3}, {15, 7, 1}, {15, 7, 1}});
  require_all(scores);
  CHECK(rows_played({.data = 4, .expert = 4}, sequences, scores) ==
        Lengths{{19, 11, 3}, {19, 11, 3}, {19, 11, 3}, {19, 11, 3}});
  require_all(scores);
}
