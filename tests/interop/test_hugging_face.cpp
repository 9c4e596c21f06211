// A run's weights by way of Hugging Face's format: the run that starts from them is the same run.
#include <catch2/catch.hpp>

#include "checkpoint/difference.h"
#include "comm/thread_communicator.h"
#include "interop/hugging_face.h"
#include "support/loop_on_threads.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::vector<std::string> losses_of(const LoopResult& result) {
  for (const std::string& told : result.told) REQUIRE(told.empty());
  std::vector<std::string> losses;
  for (const nlohmann::json& line : result.metrics) {
    if (line.at("kind") == "train") losses.push_back(line.at("loss").dump() + " " + line.at("grad_norm").dump());
  }
  return losses;
}

}  // namespace

TEST_CASE("exported, imported and trained on: as from the checkpoint itself", "[train]") {
  const ShardFolder folder;
  Config config = tiny_config();
  const std::string corpus = make_corpus(folder);
  config.data.train = corpus;
  config.train.steps = 3;
  config.checkpoint.every_steps = 3;
  config.model.hidden_size = 24;  // no multiples of what matrices are transposed by
  config.model.ffn_hidden_size = 52;
  config.parallel.tensor = 2;
  config.parallel.pipeline = 2;
  config.parallel.data = 1;
  config.run.directory = folder.file("first");
  losses_of(run_loop(config));

  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader source = open_named_checkpoint(world, folder.file("first"), warnings);
    const ConversionReport exported = export_checkpoint(source, folder.file("exported"), world, {});
    CHECK(exported.compared->largest_difference == 0);
    CHECK(exported.compared->logits.size() == exported.compared->tokens.size() * 50);
    // The shards' vocabulary has no files that could be exported, but a name and a hash.
    const ConversionReport imported = import_checkpoint(folder.file("exported"), folder.file("imported"), world, {});
    CHECK(imported.has_tokenizer);
    ImportOptions by_data;
    by_data.data = corpus;
    import_checkpoint(folder.file("exported"), folder.file("by data"), world, by_data);
    const CheckpointReader target = open_named_checkpoint(world, folder.file("imported"), warnings);
    CHECK(target.moments() == 0);
    CHECK(target.state().facts == source.state().facts);
    for (const TensorDifference& tensor : compare_tensors(source, target, false)) {
      CAPTURE(tensor.name);
      CHECK(tensor.equal() == (tensor.name != "embedding.word.weight"));  // whose padding is zero now
    }
    const CheckpointReader other = open_named_checkpoint(world, folder.file("by data"), warnings);
    CHECK(other.state().facts == source.state().facts);
  });

  config.checkpoint.initialize_from = folder.file("first");
  config.run.directory = folder.file("from the checkpoint");
  const std::vector<std::string> expected = losses_of(run_loop(config));
  REQUIRE(expected.size() == 3);
  config.checkpoint.initialize_from = folder.file("imported");
  config.run.directory = folder.file("from the import");
  CHECK(losses_of(run_loop(config)) == expected);
}
