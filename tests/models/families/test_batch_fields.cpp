// Fields of a family's micro-batches, and the stages that read them.
#include "distributed/comm/counting_communicator.h"
#include "models/families/family.h"
#include "support/catch.h"
#include "support/model_sizes.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config tiny_fields_config() {
  Config config;
  config.model = model_of({.layers = 12, .hidden = 16, .heads = 4, .ffn = 24, .sequence = 8});
  config.train.micro_batch_size = 3;
  return config;
}

/// Whether a chunk of this pipeline stage reads each field, by its name.
std::string read_by(Config config, int stages, int stage) {
  config.parallel.pipeline = stages;
  CountingCommunicator world(stage, stages);
  const ProcessGrid grid(world, {.pipeline = stages, .ties = family_of(config.model).ties(config)});
  const TensorRegion region(grid, false);
  ParameterStore store;
  const Stages chunks = make_stages(config, grid, region, store);
  std::string names;
  for (const BatchField& field : batch_layout(config).fields) {
    if (field.source != FieldSource::sample) continue;
    for (const auto& chunk : chunks) {
      if (!chunk->reads(field)) continue;
      names += std::string(names.empty() ? "" : ", ") + field.name;
      break;
    }
  }
  return names;
}

}  // namespace

TEST_CASE("batch fields: GPT's memory by the configuration of documents") {
  Config config = tiny_fields_config();
  const std::size_t numbers = 8 * 3 * 4;  // bytes of a [s, b] field
  // Tokens, targets and weights of each micro-batch; position ids and positions of all.
  CHECK(batch_layout(config).bytes(5) == 5 * 3 * numbers + numbers + 8 * 4);
  config.data.reset_attention_mask = true;
  CHECK(batch_layout(config).bytes(5) == 5 * 4 * numbers + numbers + 8 * 4);
  config.data.reset_position_ids = true;  // position ids are a sample's then
  CHECK(batch_layout(config).bytes(5) == 5 * 5 * numbers + 8 * 4);
  config.data.reset_attention_mask = false;
  CHECK(batch_layout(config).bytes(5) == 5 * 4 * numbers + 8 * 4);
}

TEST_CASE("batch fields: a stage reads only fields that its own parts need") {
  Config config = tiny_fields_config();
  CHECK(read_by(config, 1, 0) == "tokens, targets, loss weights");
  CHECK(read_by(config, 3, 0) == "tokens");
  CHECK(read_by(config, 3, 1).empty());
  CHECK(read_by(config, 3, 2) == "targets, loss weights");
  config.data.reset_attention_mask = config.data.reset_position_ids = true;
  CHECK(read_by(config, 3, 0) == "tokens, position ids, document starts");  // learned positions are embedded
  CHECK(read_by(config, 3, 1) == "document starts");
  config.model.position_embedding = "rope";
  CHECK(read_by(config, 3, 1) == "position ids, document starts");
  config.parallel.virtual_stages = 2;
  config.data = {};
  CHECK(read_by(config, 2, 0) == "tokens");
  CHECK(read_by(config, 2, 1) == "targets, loss weights");
}
