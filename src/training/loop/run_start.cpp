#include "training/loop/run_start.h"

#include <fmt/ranges.h>

#include <sstream>

#include "config/rules/rules.h"
#include "config/schema/print.h"
#include "distributed/comm/agreement.h"
#include "planning/dry_run/group_members.h"
#include "training/step/compute.h"
#include "training/step/offload.h"

namespace megatron {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// One file may be another on another node, and variables in paths another for each rank.
void require_same_config(Communicator& world, const Config& config) {
  const std::string mine = print_config(config), root = world.broadcast_text(mine, 0);
  agree(world, [&] {
    if (mine == root) return;
    const std::vector<std::string> here = lines_of(mine), there = lines_of(root);
    std::size_t i = 0;
    while (i < here.size() && i < there.size() && here[i] == there[i]) ++i;
    fail(ErrorKind::configuration,
         "the configuration here is not rank 0's: '{}' instead of '{}'; give every rank the same input file, options "
         "and variables",
         i < here.size() ? here[i] : "", i < there.size() ? there[i] : "");
  });
}

// Data may lie on each node's own disk: one stale copy would train copies of the model apart.
void require_same_data(Communicator& world, const Datasets& datasets) {
  const std::string mine = datasets.fingerprint(), root = world.broadcast_text(mine, 0);
  agree(world, [&] {
    verify(mine == root, ErrorKind::data,
           "the {} here are not rank 0's, under the same names; copy the same files to every node",
           datasets.task() != nullptr ? "files of examples" : "token shards");
  });
}

}  // namespace

ResolvedRun agree_on_run(Config config, Communicator& world, std::vector<std::string>& warnings, bool fresh) {
  require_same_config(world, config);
  config.run = choose_device(config.run, world, warnings);
  if (Activity* activity = world.activity()) activity->set_phase("opening data");
  std::unique_ptr<Datasets> datasets;
  agree(world, [&] {
    try {
      datasets = std::make_unique<Datasets>(fresh ? without_own_run(config) : config);
    } catch (const Error& error) {
      std::vector<std::string> problems = {error.what()};
      for (const Violation& violation : check_with_ranks(config, world.size())) problems.push_back(violation.whole());
      if (problems.size() == 1) throw;
      fail(ErrorKind::configuration, "{}", fmt::join(problems, "\n"));
    }
  });
  require_same_data(world, *datasets);
  agree(world, [&] {
    require_offload(config.optimizer, on_host_memory(config.run));
    const DataFacts facts = datasets->facts();
    resolve(config, world.size(), &facts, &warnings);
    describe_groups(config);  // refuses those of no parameter
  });
  require_same_config(world, config);
  std::vector<TrainingTask> tasks = open_evaluation_tasks(config, *datasets, world);
  return {std::move(config), std::move(datasets), std::move(tasks)};
}

}  // namespace megatron
