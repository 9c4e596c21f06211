#include "train/saved_layout.h"

#include <fmt/ranges.h>

#include "comm/counting_communicator.h"
#include "config/parse.h"
#include "config/resolve.h"
#include "config/rules.h"
#include "model/family.h"
#include "train/grid.h"

namespace megatron {

std::vector<SavedPart> saved_parts(const ParameterStore& store, const ProcessGrid& grid) {
  std::vector<FlatRange> mine = store.owned_by(grid.copies().rank());
  std::vector<SavedPart> parts;
  for (const Parameter& parameter : store.all()) {
    if (!parameter.owner) continue;
    if (store.shards() == 1) {  // every copy has all: it writes its share
      const Communicator& copies = grid.copies(parameter.copies);
      const std::int64_t first = parameter.elements() * copies.rank() / copies.size();
      const std::int64_t end = parameter.elements() * (copies.rank() + 1) / copies.size();
      mine = {{parameter.first + first, end - first}};
    }
    for (const FlatRange& range : ParameterStore::parts_in(parameter, mine)) parts.push_back({&parameter, range});
  }
  return parts;
}

std::vector<TensorSlice> saved_layout(const Config& config, int rank) {
  const GridShape shape = grid_shape(config);
  CountingCommunicator world(rank, shape.ranks());
  const ProcessGrid grid(world, shape);
  const TensorRegion region(grid, config.parallel.sequence_parallel);
  ParameterStore store;
  make_stages(config, grid, region, store);
  store.allocate_sizing(DType::f32, config.optimizer.distributed ? shape.copies() : 1);
  std::vector<TensorSlice> slices;
  for (const SavedPart& part : saved_parts(store, grid)) {
    const Parameter& parameter = *part.parameter;
    slices.push_back({parameter.name,
                      parameter.global_shape,
                      parameter.box,
                      part.range.first - parameter.first,
                      part.range.count,
                      {},
                      {},
                      {}});
  }
  return slices;
}

namespace {

/// Before resolve(), which says the same to those who have an input file to change.
void require_that_it_divides(const Config& config, const std::string& path) {
  std::vector<std::string> problems;
  for (const Violation& violation : check_alone(config)) problems.push_back(violation.message);
  verify(problems.empty(), ErrorKind::configuration,
         "{} cannot be cut so: {}; choose other --tensor, --pipeline or --virtual-stages", path,
         fmt::join(problems, "\n"));
}

}  // namespace

Config config_for_layout(const CheckpointReader& checkpoint, const GridShape& shape, int virtual_stages) {
  std::string text;
  read_state(checkpoint, [&](const nlohmann::json& extra) { text = extra.at("config").get<std::string>(); });
  Config config = parse_config_text(text, checkpoint.path() + " (its configuration)");
  config.parallel = {};
  config.parallel.tensor = shape.tensor;
  config.parallel.pipeline = shape.pipeline;
  config.parallel.data = shape.data;
  config.parallel.virtual_stages = virtual_stages;
  if (virtual_stages > 1) config.parallel.schedule = schedule_with_chunks();
  config.train = {};  // any batches and lengths will do
  config.train.steps = 1;
  config.train.global_batch_size = std::int64_t{shape.data} * shape.pipeline;
  config.learning_rate = {};
  config.learning_rate.decay = "constant";
  require_that_it_divides(config, checkpoint.path());
  resolve(config, shape.ranks(), nullptr);
  return config;
}

}  // namespace megatron
