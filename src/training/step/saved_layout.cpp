#include "training/step/saved_layout.h"

#include <fmt/ranges.h>

#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "config/rules/rules.h"
#include "training/optimizer/parameter_groups.h"
#include "training/step/declared_rank.h"

namespace megatron {

namespace {

/// Range that one of `ranks` writes, where each has all.
FlatRange share_of(const FlatRange& all, int rank, int ranks) {
  const std::int64_t first = all.count * rank / ranks, end = all.count * (rank + 1) / ranks;
  return {all.first + first, end - first};
}

FlatRange share_of(const Parameter& parameter, const FlatRange& all, const GridCoordinates& at,
                   const GridShape& shape) {
  return share_of(all, copy_rank(parameter.copies, at, shape), shape.copies(parameter.copies));
}

TensorSlice without_memory(const Parameter& parameter, const FlatRange& range) {
  return {parameter.name, parameter.global_shape, parameter.box, range.first, range.count};
}

}  // namespace

std::vector<SavedPart> saved_parts(const ParameterStore& store, const GridCoordinates& at, const GridShape& shape) {
  std::vector<FlatRange> mine = store.owned_by(shard_at(at, shape));
  std::vector<SavedPart> parts;
  for (const Parameter& parameter : store.all()) {
    if (!parameter.owner) continue;
    if (!store.sharded()) {
      mine = {share_of(parameter, {parameter.first, parameter.elements()}, at, shape)};
    }
    for (const FlatRange& part : ParameterStore::parts_in(parameter, mine)) {
      const FlatRange range = store.sharded() ? share_of(part, replica_rank(at, shape), shape.replicas) : part;
      if (range.count > 0) parts.push_back({&parameter, range});
    }
  }
  return parts;
}

std::vector<SavedState> saved_states(const ParameterStore& store, const GridCoordinates& at, const GridShape& shape) {
  std::vector<SavedState> parts;
  for (const ModelState& state : store.states()) {
    const FlatRange share = share_of(state, {0, state.elements()}, at, shape);
    if (state.owner && share.count > 0) parts.push_back({&state, share});
  }
  return parts;
}

std::vector<TensorSlice> saved_layout(const Config& config, int rank) {
  const DeclaredRank declared(config, rank);
  const ParameterGroups groups(config);
  std::vector<TensorSlice> slices;
  for (const SavedPart& part : saved_parts(declared.store, declared.grid.at(), declared.grid.shape())) {
    const Parameter& parameter = *part.parameter;
    slices.push_back(without_memory(parameter, {part.range.first - parameter.first, part.range.count}));
    for (const std::string_view state : groups.of(parameter).states()) {
      slices.back().states.push_back({std::string(state), {}});
    }
  }
  for (const SavedState& part : saved_states(declared.store, declared.grid.at(), declared.grid.shape())) {
    slices.push_back(without_memory(*part.state, part.range));
  }
  return slices;
}

namespace {

/// Before resolve(), which says the same to those who have an input file to change.
void require_that_it_divides(const Config& config, const std::string& path) {
  const bool experts = config.model.moe.experts > 0;
  std::vector<std::string> problems;
  for (const Violation& violation : check_alone(config)) problems.push_back(violation.message);
  verify(problems.empty(), ErrorKind::configuration,
         "{} cannot be cut so: {}; choose other --tensor, --pipeline{} --virtual-stages{}", path,
         fmt::join(problems, "\n"), experts ? "," : " or", experts ? ", --data or --expert" : "");
}

}  // namespace

Config saved_config(const CheckpointReader& checkpoint) {
  const nlohmann::json& extra = checkpoint.state().extra;
  verify(extra.contains("config") && extra.at("config").is_string(), ErrorKind::checkpoint,
         "{} was not written by megatron_train: it lacks the run's configuration", checkpoint.path());
  return parse_config_text(extra.at("config").get<std::string>(), checkpoint.path() + " (its configuration)");
}

Config config_of_model(const Config& run) {
  Config config;
  config.model = run.model;
  config.precision.compute = run.precision.compute;
  if (run.task.has_head()) config.task = run.task;   // a decoder that has learned from instructions is one like others
  config.optimizer.scaling = run.optimizer.scaling;  // model.base_hidden_size belongs to it
  config.data.train = run.data.train;                // every configuration names some
  config.train.steps = config.train.global_batch_size = config.train.micro_batch_size = 1;
  return config;
}

Config config_for_layout(const CheckpointReader& checkpoint, const GridShape& shape, int virtual_stages) {
  const Config run = saved_config(checkpoint);
  Config config = config_of_model(run);
  config.optimizer = run.optimizer;
  config.optimizer.share_within = 0;
  // Pipelines refuse share = "weights"; which rank writes what is all that follows from it here.
  if (config.optimizer.shares().weights && shape.pipeline > 1) config.optimizer.share = "gradients";
  config.optimizer_groups = run.optimizer_groups;
  config.parallel.tensor = shape.tensor;
  config.parallel.pipeline = shape.pipeline;
  config.parallel.data = shape.data;
  config.parallel.expert = shape.expert;
  config.parallel.sequence_parallel = shape.expert > 1 && shape.tensor > 1;  // as it must be there
  config.parallel.virtual_stages = virtual_stages;
  if (virtual_stages > 1) config.parallel.schedule = schedule_with_chunks();
  config.train.global_batch_size = std::int64_t{shape.data} * shape.pipeline;  // any that the grid can do
  require_that_it_divides(config, checkpoint.path());
  resolve(config, shape.ranks(), nullptr);
  return config;
}

}  // namespace megatron
