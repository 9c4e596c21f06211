#include "planning/dry_run/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/ops/backends.h"
#include "base/text/text.h"
#include "config/rules/resolve.h"
#include "data/samples/megatron_order.h"
#include "planning/dry_run/analytic_memory.h"
#include "planning/dry_run/group_members.h"
#include "planning/dry_run/machine_plan.h"
#include "planning/dry_run/parameter_table.h"
#include "planning/dry_run/plan_text.h"
#include "planning/dry_run/recompute_table.h"
#include "planning/dry_run/split_report.h"
#include "planning/dry_run/start_paths.h"
#include "training/datasets/datasets.h"
#include "training/datasets/evaluation_tasks.h"
#include "training/pipeline/simulate.h"
#include "training/step/compute.h"
#include "training/step/grid.h"

namespace megatron {

int count_ranks(const ParallelConfig& parallel) {
  double ranks = 1;
  const std::int64_t data = parallel.data > 0 ? parallel.data : parallel.expert;  // no fewer can share the experts out
  for (const std::int64_t extent : {parallel.tensor, parallel.context, parallel.pipeline, data}) {
    ranks *= static_cast<double>(std::max<std::int64_t>(1, extent));
  }
  verify(ranks < 1 << 30, ErrorKind::configuration, "parallel: {} ranks are more than there can be", ranks);
  return static_cast<int>(ranks);
}

std::optional<DataFacts> facts_of_data(const Config& config) {
  try {
    return Datasets(config).facts();
  } catch (const Error& error) {
    verify(config.model.vocab_size > 0, ErrorKind::configuration,
           "the vocabulary is the data's, which cannot be read ({}); give --set model.vocab_size=50257 or the like",
           error.what());
    return std::nullopt;
  }
}

namespace {

constexpr std::int64_t kByteVocabulary = 257;

// The memory of Megatron's order without the data: how many documents and passes there are is unknown.
std::string index_note(const Config& config) {
  const auto samples = static_cast<std::uint64_t>(config.data.order_samples);
  if (samples == 0)
    return config.data.order +
           ": an index of 4 bytes per sample and 4 bytes per document and pass on ranks that read data";
  return fmt::format(
      "{}: made for {} samples, an index of {:.1f} MiB, and 4 bytes per document and pass, on ranks that read data",
      config.data.order, samples, static_cast<double>(samples * CompactIndex::bytes_each(samples)) / (1 << 20));
}

std::string describe_splits(const Config& config, const Datasets& datasets) {
  std::string text;
  const SplitReport splits = report_splits(config, datasets);
  for (const std::string& line : splits.lines) text += line + "\n";
  for (const std::string& warning : splits.warnings) text += "warning: " + warning + "\n";
  return text;
}

/// Whether an error is about the contents of a task's files. Files that a machine lacks can be planned without; what is
/// there and cannot be read stops a training run too.
bool is_of_existing_examples(const Config& config, const Error& error) {
  if (!config.task.given() || error.kind() != ErrorKind::data) return false;
  bool any = false;
  for (const Blend* files : {&config.data.train, &config.data.validation, &config.data.test}) {
    for (const BlendPart& part : files->parts) {
      std::error_code unknown;
      if (std::filesystem::exists(part.path, unknown)) {
        any = true;
      } else if (std::string_view(error.what()).starts_with(part.path + " cannot be read: ")) {
        return false;  // as RegularFile words it
      }
    }
  }
  return any;
}

/// A run's data, as far as it is there, and what is to be said of it.
struct PlannedData {
  std::unique_ptr<const Datasets> datasets;
  std::optional<DataFacts> facts;
  std::string order, notes;
};

// Resolves the configuration for this number of ranks, or with 0 for as many as its extents need.
PlannedData resolve_for_plan(Config& config, int ranks) {
  if (ranks == 0) ranks = count_ranks(config.parallel);
  PlannedData data;
  try {
    data.datasets = std::make_unique<const Datasets>(config);
    data.facts = data.datasets->facts();
    if (config.data.megatrons_order() || config.data.train.parts.size() > 1) {
      data.order = data.datasets->train().samples->description();
    }
    for (const std::string& note : data.datasets->notes()) data.notes += note + "\n";
  } catch (const Error& error) {
    if (is_of_existing_examples(config, error)) throw;
    data.notes = fmt::format("data: planned without ({})", error.what());
    if (config.model.vocab_size == 0) {
      config.model.vocab_size = kByteVocabulary;
      data.notes += fmt::format("; vocabulary taken as the byte tokenizer's {}", kByteVocabulary);
    }
    if (config.train.epochs > 0) data.notes += "; steps unknown";
    data.notes += "\n";
  }
  std::vector<std::string> warnings;
  config.run = choose_planned_device(config.run);
  resolve(config, ranks, data.facts ? &*data.facts : nullptr, &warnings);
  for (const std::string& warning : warnings) data.notes += "warning: " + warning + "\n";
  return data;
}

}  // namespace

std::string dry_run(Config config, int ranks) {
  PlannedData data = resolve_for_plan(config, ranks);
  const std::optional<DataFacts>& facts = data.facts;

  const std::string tasks = describe_evaluation_tasks(config, data.datasets.get());
  const GridShape shape = grid_shape(config);
  const std::vector<MemoryPlan> stages = plan_stages(config, shape);
  std::string text = describe_plan(config, stages) + "\n" + wrapped(compare_with_analytic(config, stages.front()));
  text += wrapped(describe_recompute_parts(config));
  if (shape.pipeline > 1) {
    text += draw_schedules(
        make_schedules(config.parallel.schedule, shape.pipeline, static_cast<int>(micro_batches_per_step(config)),
                       static_cast<int>(config.parallel.virtual_stages)),
        100);
  }
  text += wrapped(data.notes);
  if (data.datasets != nullptr) text += wrapped(describe_splits(config, *data.datasets));
  text += wrapped(tasks);
  if (data.order.empty() && config.data.megatrons_order()) data.order = index_note(config);
  if (!data.order.empty()) text += "data.order = " + data.order + "\n";
  const bool built = on_host_memory(config.run) || cuda_build().cuda;
  if (!built) text += "planned for CUDA devices, which this build has no backend for\n";
  Machine machine = measure_machine(config);
  if (facts && machine.free_memory) *machine.free_memory += facts->host_bytes;  // this program holds them once
  const MachinePlan here = plan_for_machine(config, stages, facts ? &*facts : nullptr, machine, shape.ranks());
  text += wrapped(here.text);
  StartPaths paths = examine_start_paths(config, data.datasets.get());
  for (const std::string& line : paths.lines) text += wrapped(line);
  paths.warnings.insert(paths.warnings.end(), here.warnings.begin(), here.warnings.end());
  for (const std::string& warning : paths.warnings) text += wrapped("warning: " + warning + "\n");
  const bool complete = facts && built;
  if (complete) paths.obstacles.insert(paths.obstacles.end(), here.obstacles.begin(), here.obstacles.end());
  if (!paths.obstacles.empty()) {
    return text + fmt::format("this run cannot be trained on this machine: {}\n", fmt::join(paths.obstacles, "; "));
  }
  if (!complete) return text;
  const bool elsewhere = shape.ranks() > most_ranks_here(machine.cores);
  return text + (elsewhere ? "this run can be trained where its ranks have what they need\n"
                           : "this run can be trained as it is\n");
}

std::string list_parameters(Config config, int ranks) {
  const PlannedData data = resolve_for_plan(config, ranks);
  return wrapped(data.notes) + wrapped(describe_groups(config)) + parameter_table(config);
}

}  // namespace megatron
