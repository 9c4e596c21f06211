// Scores of targets against logits of the whole model on one rank; the same on every layout; memory to the byte.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "inference/decoding/inference_model.h"
#include "inference/decoding/scorer.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/require_error.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

// Sequences of pseudo-random tokens: of the whole context, of two tokens, and between; some of which count partly.
class Sequences {
 public:
  Sequences(std::int64_t context, std::int64_t vocab, int count) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t length = i % 3 == 0 ? context + 1 : 2 + (i * 5) % (context - 1);
      for (std::int64_t k = 0; k < length; ++k) {
        tokens_[static_cast<std::size_t>(i)].push_back(static_cast<std::int32_t>((i * 31 + k * k * 7 + k) % vocab));
      }
      all.push_back({tokens_[static_cast<std::size_t>(i)], i % 2 == 0 ? 1 : length - 1});
    }
  }
  void end_with(std::size_t number, std::int32_t token) { tokens_[number].back() = token; }
  std::vector<ScoredSequence> all;

 private:
  std::array<std::vector<std::int32_t>, 64> tokens_;
};

Compute compute_of(Communicator& world, bool separate) {
  Compute compute{
      .backend = separate ? make_separate_backend() : make_cpu_backend(), .transport = {}, .description = {}};
  compute.transport = staged_transport(world, *compute.backend.device);
  return compute;
}

// Threads have no staging, and data ranks with short sequences use less of their arenas; rank 0 has the longest.
bool fits(const MemoryUse& plan, const MemoryUse& used, bool exactly) {
  const auto part = [&](std::size_t MemoryUse::*member) {
    return exactly ? plan.*member == used.*member : plan.*member >= used.*member;
  };
  return part(&MemoryUse::weights) && part(&MemoryUse::activations) && part(&MemoryUse::scratch) &&
         part(&MemoryUse::batch) && plan.gradients == 0 && plan.optimizer == 0 && plan.snapshot == 0 &&
         plan.communication >= used.communication && plan.host >= used.host;
}

struct Outcome {
  std::vector<TargetScore> scores;  // rank 0's
  bool same_everywhere = true, as_planned = true;
  std::vector<std::int64_t> progress;
};

Outcome score(const std::string& run, const ScoringLayout& layout, const Sequences& sequences, std::int64_t longest,
              bool separate = false) {
  Outcome outcome;
  std::vector<std::vector<TargetScore>> scores(static_cast<std::size_t>(layout.ranks));
  std::vector<int> planned(scores.size());
  run_as_threads(layout.ranks, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, run, warnings);
    Config config = config_for_scoring(checkpoint, layout);
    config.run.device = separate ? "cuda" : "cpu";
    config.run.communication = "mpi";
    Compute compute = compute_of(world, separate);
    const GridShape shape = grid_shape(config);
    const ProcessGrid grid(world, shape, compute.transport.get());
    Scorer scorer(config, grid, compute.backend, longest);
    scorer.load(checkpoint);
    const auto rank = static_cast<std::size_t>(world.rank());
    scores[rank] = scorer.score(sequences.all, [&](std::int64_t done) {
      if (rank == 0) outcome.progress.push_back(done);
    });
    planned[rank] =
        fits(plan_scoring(config, shape, grid.at(), longest, separate ? TransportKind::staged : TransportKind::host),
             scorer.used(), rank == 0)
            ? 1
            : 0;
  });
  outcome.scores = scores[0];
  for (std::size_t rank = 0; rank < scores.size(); ++rank) {
    outcome.as_planned = outcome.as_planned && planned[rank] == 1;
    for (std::size_t i = 0; i < scores[rank].size(); ++i) {
      outcome.same_everywhere =
          outcome.same_everywhere && scores[rank][i].log_probability == scores[0][i].log_probability;
    }
  }
  return outcome;
}

// By the definition, from the logits of the whole model. Every third sequence is made to end with the likeliest token.
std::vector<TargetScore> by_logits(const std::string& run, Sequences& sequences) {
  std::vector<TargetScore> scores;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, run, warnings);
    InferenceModel model(config_for_inference(checkpoint), world, compute_of(world, false));
    model.load(world, checkpoint);
    const auto vocab = static_cast<std::size_t>(model.config().model.vocab_size);
    for (std::size_t number = 0; number < sequences.all.size(); ++number) {
      const ScoredSequence& sequence = sequences.all[number];
      std::vector<float> logits;
      if (number % 3 == 1) {
        const auto last = static_cast<std::int64_t>(sequence.tokens.size()) - 2;
        model.logits(sequence.tokens.first(sequence.tokens.size() - 1), last, logits);
        sequences.end_with(number,
                           static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      }
      model.logits(sequence.tokens.first(sequence.tokens.size() - 1), sequence.first_scored - 1, logits);
      for (std::size_t i = 0; i < static_cast<std::size_t>(sequence.targets()); ++i) {
        const std::span<const float> row = std::span(logits).subspan(i * vocab, vocab);
        double largest = row[0], sum = 0;
        for (const float logit : row) largest = std::max(largest, double{logit});
        for (const float logit : row) sum += std::exp(logit - largest);
        const float target =
            row[static_cast<std::size_t>(sequence.tokens[static_cast<std::size_t>(sequence.first_scored) + i])];
        scores.push_back({target - largest - std::log(sum), target == largest});
      }
    }
  });
  return scores;
}

double worst_difference(const std::vector<TargetScore>& a, const std::vector<TargetScore>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i].log_probability - b[i].log_probability));
  }
  return worst;
}

std::string trained(const ShardFolder& folder, void (*change)(ModelConfig&)) {
  Config config = tiny_config();
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.data.train = make_corpus(folder);
  config.run.directory = folder.file("run");
  config.train.steps = 6;
  config.learning_rate.peak = 0.02;
  if (change != nullptr) change(config.model);
  run_loop(config);
  return config.run.directory;
}

}  // namespace

TEST_CASE("scorer: each layout and micro-batch size gives the definition's scores") {
  const ShardFolder folder;
  using ModelChange = void (*)(ModelConfig&);
  const std::string run = trained(folder, GENERATE(values<ModelChange>({nullptr, like_llama, with_one_group})));
  Sequences sequences(16, 50, 23);
  const std::vector<TargetScore> expected = by_logits(run, sequences);
  const auto right = std::count_if(expected.begin(), expected.end(), [](const TargetScore& s) { return s.right; });
  REQUIRE(right >= 8);
  REQUIRE(right < static_cast<std::int64_t>(expected.size()) / 2);
  struct Case {
    int ranks;
    std::int64_t tensor, pipeline, micro_batch_size;
  };
  for (const auto& [ranks, tensor, pipeline, size] :
       {Case{1, 1, 1, 1}, Case{1, 1, 1, 5}, Case{2, 2, 1, 3}, Case{2, 1, 2, 4}, Case{3, 1, 1, 2}, Case{4, 4, 1, 8},
        Case{4, 1, 4, 1}, Case{8, 2, 2, 3}, Case{8, 1, 1, 2}}) {
    CAPTURE(ranks, tensor, pipeline, size);
    const Outcome outcome = score(run, {ranks, tensor, pipeline, size}, sequences, 16);
    CHECK(worst_difference(outcome.scores, expected) < 2e-5);
    for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(outcome.scores[i].right == expected[i].right);
    CHECK(outcome.same_everywhere);
    CHECK(outcome.as_planned);
    CHECK(outcome.progress.back() == 23);
  }
}

TEST_CASE("scorer: 16-bit weights halve the bytes also with separate memory") {
  const ShardFolder folder;
  const std::string run = trained(folder, nullptr);
  const Sequences sequences(16, 50, 12);
  const Outcome full = score(run, {1}, sequences, 16);
  for (const auto& [precision, rounding] : {std::pair("bf16", 0.2), std::pair("fp16", 0.025)}) {
    CAPTURE(precision);
    const Outcome half = score(run, {4, 2, 2, 2, precision}, sequences, 16);
    CHECK(half.as_planned);
    CHECK(worst_difference(half.scores, full.scores) > 0);
    CHECK(worst_difference(half.scores, full.scores) < rounding);
    const Outcome on_device = score(run, {4, 2, 2, 2, precision}, sequences, 16, true);
    CHECK(on_device.as_planned);
    CHECK(worst_difference(on_device.scores, half.scores) == 0);
  }
}

TEST_CASE("scorer: fewer sequences than ranks, of fewer tokens than the context") {
  const ShardFolder folder;
  const std::string run = trained(folder, nullptr);
  Sequences sequences(9, 50, 1);
  const std::vector<TargetScore> expected = by_logits(run, sequences);
  const Outcome outcome = score(run, {8, 2, 1, 3}, sequences, 9);
  CHECK(worst_difference(outcome.scores, expected) < 2e-5);
  CHECK(outcome.as_planned);
}

TEST_CASE("scorer: layouts that the model does not fit are refused by name") {
  const ShardFolder folder;
  const std::string run = trained(folder, nullptr);
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, run, warnings);
    require_error(ErrorKind::configuration, {"tensor 2 × pipeline 2 needs a multiple of 4 ranks, not 6"}, [&] {
      config_for_scoring(checkpoint, {6, 2, 2});
    });
    require_error(ErrorKind::configuration, {"model.layers = 4", "pipeline = 3"}, [&] {
      config_for_scoring(checkpoint, {3, 1, 3});
    });
    require_error(ErrorKind::configuration, {"attention_heads = 4", "tensor = 3"}, [&] {
      config_for_scoring(checkpoint, {3, 3, 1});
    });
  });
}
