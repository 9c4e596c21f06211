// Instructions through a decoder: packed examples have the loss and the gradients that they have each alone in a
// sequence, whatever tells positions apart.
#include <mutex>

#include "backend/ops/backends.h"
#include "data/samples/batches.h"
#include "data/samples/instruction_samples.h"
#include "distributed/comm/thread_communicator.h"
#include "support/byte_words.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/tiny_training.h"
#include "training/datasets/datasets.h"
#include "training/step/compatibility.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int64_t kPackedSequence = 24;

struct Played {
  double loss = 0, count = 0, evaluated = 0;
  NamedValues gradients;
};

std::shared_ptr<EncodedInstructions> encoded(std::span<const Instruction> instructions) {
  const ByteWords tokenizer(false);
  auto examples = std::make_shared<EncodedInstructions>(tokenizer, kPackedSequence);
  for (const Instruction& instruction : instructions) examples->add(instruction);
  examples->pack("here");
  return examples;
}

Config config_of(const std::string& positions, std::int64_t samples) {
  Config config = tiny_config();
  config.model.sequence_length = config.model.max_position_embeddings = kPackedSequence;
  config.model.vocab_size = 256;
  config.model.position_embedding = positions;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.task.name = "instructions";
  config.train.global_batch_size = samples;
  return config;
}

/// All samples of all sets as one batch, on one rank.
Played play(const std::string& positions, const std::vector<std::shared_ptr<EncodedInstructions>>& sets) {
  std::int64_t count = 0;
  for (const auto& set : sets) count += static_cast<std::int64_t>(set->samples());
  const Config config = config_of(positions, count);
  Played played;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    std::vector<std::unique_ptr<InstructionSamples>> samples;
    std::vector<std::unique_ptr<BatchReader>> readers;
    std::vector<MicroBatch> micro_batches;
    std::vector<double> counts = {0};
    for (const auto& set : sets) {
      samples.push_back(std::make_unique<InstructionSamples>(set, InstructionSamples::Order::sequential, 1));
      const auto size = static_cast<std::int64_t>(set->samples());
      readers.push_back(std::make_unique<BatchReader>(
          *samples.back(), batch_layout(config), BatchShare{.most_samples = size},
          [size](std::int64_t step) { return GlobalBatch{.samples = step == 0 ? size : 0}; }, 0));
      const StepBatch& batch = readers.back()->next();
      micro_batches.insert(micro_batches.end(), batch.micro_batches.begin(), batch.micro_batches.end());
      counts[0] += batch.loss_counts[0];
    }
    Timers timers;
    played.evaluated = replica.evaluate(micro_batches, counts, timers).total;
    const StepSums sums = replica.forward_backward(micro_batches, 1, {.counts = counts}, timers);
    for (const TensorSlice& slice : replica.summed_gradients()) assemble(slice, played.gradients);
    played.loss = replica.update(sums, {}, timers).loss.total;
    played.count = counts[0];
  });
  return played;
}

}  // namespace

TEST_CASE("instructions: packing examples changes no loss and no gradient") {
  const std::string positions = GENERATE("learned", "rope", "alibi", "none");
  const Instruction chat = {{"U:hi;", false, true}, {"B:", false, true}, {"yes", true, false}, {";", true, true}};
  const std::vector<Instruction> instructions = {{{"2+2=", false, false}, {"4", true, false}},
                                                 {{"say ab", false, false}, {"ab", true, false}},
                                                 chat,
                                                 {{"count to five: ", false, false}, {"12345", true, false}}};
  const auto packed = encoded(instructions);
  REQUIRE(packed->samples() == 2);
  std::vector<std::shared_ptr<EncodedInstructions>> alone;
  for (const Instruction& instruction : instructions) alone.push_back(encoded(std::span(&instruction, 1)));
  const Played together = play(positions, {packed}), apart = play(positions, alone);
  // "4", "ab", "yes;" and "12345", each with the end.
  CHECK(together.count == 2 + 3 + 5 + 6);
  CHECK(together.count == apart.count);
  CHECK(together.loss == Approx(apart.loss).epsilon(1e-6));
  CHECK(together.evaluated == Approx(apart.evaluated).epsilon(1e-6));
  REQUIRE(together.gradients.size() == apart.gradients.size());
  for (const auto& [name, gradient] : together.gradients) {
    if (name.ends_with("key.bias")) continue;  // zero but for rounding
    CAPTURE(positions, name);
    CHECK(relative_difference(gradient, apart.gradients.at(name)) < 1e-5);
  }
}

TEST_CASE("instructions: a run that encoded texts in parts is not resumed") {
  const TemporaryFolder folder;
  const std::string messages = R"([{"role": "user", "content": "2+2="}, {"role": "assistant", "content": "4"}])";
  write_file(folder.file("chat.jsonl"), "{\"messages\": " + messages + "}\n");
  Config config = tiny_config();
  config.task.name = "instructions";
  config.task.tokenizer = "byte";
  config.model.sequence_length = 128;
  config.data.train = folder.file("chat.jsonl");
  const nlohmann::json facts = order_facts(config, Datasets(config));
  nlohmann::json older = facts;
  older.erase("texts_of_examples");
  CHECK(data_order_mismatches(compare_facts(facts, facts), true).empty());
  const std::vector<FactDifference> changes = data_order_mismatches(compare_facts(older, facts), true);
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].key == "texts_of_examples");
  CHECK(changes[0].current == R"("encoded whole")");
}
