// A head in chunks keeps no logits of micro-batches in flight, and an evaluation with one makes no gradients.
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "training/step/grid.h"
#include "training/step/memory_layout.h"
#include "training/step/replica.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::size_t kHeadSequence = 16, kHeadWidth = 32, kBytes = sizeof(float);

Config in_chunks(std::int64_t chunks, const Layout& layout, std::int64_t vocabulary = 50) {
  Config config = config_of(layout);
  config.model.vocab_size = vocabulary;
  config.model.head_chunks = chunks;
  return config;
}

MemoryPlan plan_of(const Config& config) {
  return plan_memory(config, grid_shape(config), {.pipeline = static_cast<int>(config.parallel.pipeline) - 1});
}

/// Bytes that a tensor takes in an arena.
std::size_t in_arena(std::size_t floats) {
  return (floats * kBytes + 63) / 64 * 64;
}

}  // namespace

TEST_CASE("head chunks: slots hold no logits and no statistics of rows") {
  const std::int64_t batch = GENERATE(1, 2, 4);
  const std::size_t rows = kHeadSequence * static_cast<std::size_t>(batch);
  for (const char* const schedule : {"1f1b", "gpipe", "zero_bubble"}) {
    const Layout layout{.pipeline = 2, .micro_batch = batch, .schedule = schedule};
    const Config whole = in_chunks(1, layout);
    const MemoryPlan one = plan_of(whole);
    const auto words = static_cast<std::size_t>(whole.model.padded_vocab());
    for (const std::int64_t chunks : {2, 3, 5, 1000}) {
      CAPTURE(batch, schedule, chunks);
      const MemoryPlan some = plan_of(in_chunks(chunks, layout));
      REQUIRE(some.slots() == one.slots());
      // The gradient of the head's input takes the place of that input.
      for (int slot = 0; slot < one.slots(); ++slot) {
        const auto at = static_cast<std::size_t>(slot);
        CHECK(one.passes.slots[at] - some.passes.slots[at] == rows * (words + 3) * kBytes);
      }
      CHECK(some.weights + some.gradients + some.optimizer == one.weights + one.gradients + one.optimizer);
      CHECK(some.matmul_flops == one.matmul_flops);
    }
  }
}

TEST_CASE("head chunks: scratch holds the logits of the largest chunk") {
  const std::int64_t chunks = GENERATE(2, 3, 5, 16, 17);
  const bool sequence_parallel = GENERATE(false, true);
  for (const int tensor : {1, 2}) {
    CAPTURE(chunks, sequence_parallel, tensor);
    const Config config =
        in_chunks(chunks, {.tensor = tensor, .sequence_parallel = sequence_parallel && tensor > 1}, 1 << 16);
    const auto ranks = static_cast<std::size_t>(tensor), count = static_cast<std::size_t>(chunks);
    const std::size_t most = (kHeadSequence + count - 1) / count, stream = in_arena(kHeadSequence * kHeadWidth);
    const std::size_t words = static_cast<std::size_t>(config.model.padded_vocab()) / ranks;
    // The losses; the norm's output, with sequence parallelism gathered too, next to the shares of the gradient; of all
    // rows and of a chunk, what is known of its logits.
    const std::size_t streams =
        config.parallel.sequence_parallel ? in_arena(kHeadSequence * kHeadWidth / ranks) + 2 * stream : stream;
    CHECK(plan_of(config).scratch == 64 + streams + in_arena(kHeadSequence) + in_arena(2 * kHeadSequence) +
                                         in_arena(most * words) + in_arena(2 * most) + in_arena(most));
  }
}

namespace {

struct Results {
  std::vector<std::vector<float>> tokens;  // losses, maxima, targets' logits of each micro-batch
  double loss = 0;
  std::vector<float> gradients;  // all parameters' but the word table's, one after another
  std::vector<float> word;
  bool evaluation_adds_nothing = false;
};

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.as<float>(), tensor.as<float>() + tensor.elements()};
}

/// A training step's passes, and an evaluation of the same samples.
Results play(const Config& config) {
  Results results;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    const std::span<const MicroBatch> micro_batches = batches.step(1);
    replica.forward_backward(micro_batches, 1, batches.loss(), timers);
    for (const Parameter& parameter : replica.store().all()) {
      const std::vector<float> gradient = values_of(parameter.gradient);
      if (parameter.name == "embedding.word.weight") {
        results.word = gradient;
      } else {
        results.gradients.insert(results.gradients.end(), gradient.begin(), gradient.end());
      }
    }
    const std::vector<float> before = values_of(replica.store().gradients());
    const std::int64_t rows = config.model.sequence_length * config.train.micro_batch_size;
    std::vector<Owned<float>> values;
    for (std::size_t i = 0; i < 3 * micro_batches.size(); ++i) values.emplace_back(Shape{rows});
    std::vector<TargetResults> asked;
    for (std::size_t i = 0; i < values.size(); i += 3) {
      asked.push_back({.losses = values[i], .maximum = values[i + 1], .target_logit = values[i + 2]});
    }
    results.loss = replica.evaluate(micro_batches, batches.loss().counts, timers, asked).total;
    for (const Owned<float>& each : values) results.tokens.push_back(each.values());
    results.evaluation_adds_nothing = values_of(replica.store().gradients()) == before;
  });
  return results;
}

/// Whether the head's two products, logits and the gradient of its input, have the same bits in one piece and in chunks
/// of rows. The library of the CPU decides it: with AVX2, oneDNN adds in an order that depends on the number of rows.
bool products_in_chunks_have_the_same_bits(std::int64_t rows, std::int64_t chunks, std::int64_t words) {
  Backend backend = make_cpu_backend();
  const auto table = random_tensor({words, kHeadWidth}, 1);
  const auto same = [&](std::int64_t inner, bool transposed) {
    const auto x = random_tensor({rows, inner}, 2);
    const std::int64_t columns = transposed ? words : kHeadWidth;
    Owned<float> whole({rows, columns}), parts({rows, columns});
    backend.ops->matmul({.a = x, .b = table, .transpose_b = transposed, .c = whole});
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t first = rows * chunk / chunks, count = rows * (chunk + 1) / chunks - first;
      const ConstTensor part = ConstTensor(x).slice(0, first, count);
      backend.ops->matmul(
          {.a = part, .b = table, .transpose_b = transposed, .c = parts.tensor().slice(0, first, count)});
    }
    return whole == parts;
  };
  return same(kHeadWidth, true) && same(words, false);
}

}  // namespace

TEST_CASE("head chunks: the bits of one chunk, but for sums over rows") {
  const Layout layout{.micro_batch = 8};
  const Config whole = in_chunks(1, layout);
  const Results one = play(whole);
  REQUIRE(one.tokens.size() == 3);
  for (const std::int64_t chunks : {2, 3}) {  // 64 rows each; 42 or 43
    CAPTURE(chunks);
    const Results some = play(in_chunks(chunks, layout));
    if (products_in_chunks_have_the_same_bits(8 * kHeadSequence, chunks, whole.model.padded_vocab())) {
      CHECK(some.tokens == one.tokens);
      CHECK(some.loss == one.loss);
      CHECK(some.gradients == one.gradients);
    }
    CHECK(some.loss == Approx(one.loss).epsilon(1e-6));
    for (std::size_t i = 0; i < one.tokens.size(); ++i) {
      CHECK(relative_difference(some.tokens[i], one.tokens[i]) <= 1e-6);
    }
    CHECK(relative_difference(some.gradients, one.gradients) <= 1e-6);
    CHECK(relative_difference(some.word, one.word) <= 1e-6);
    CHECK(some.evaluation_adds_nothing);
  }
}

TEST_CASE("head chunks: single rows, and more chunks than rows") {
  const Layout layout{.micro_batch = 2};
  const Results one = play(in_chunks(1, layout));
  for (const std::int64_t chunks : {32, 1000}) {
    CAPTURE(chunks);
    const Results some = play(in_chunks(chunks, layout));
    CHECK(some.loss == Approx(one.loss).epsilon(1e-6));
    CHECK(relative_difference(some.word, one.word) <= 1e-5);
    for (std::size_t i = 0; i < one.tokens.size(); ++i) {
      CHECK(relative_difference(some.tokens[i], one.tokens[i]) <= 1e-5);
    }
    CHECK(some.evaluation_adds_nothing);
  }
}
