#include "planning/layout_search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "config/rules/rules.h"
#include "planning/layout_search/bounds.h"

namespace megatron {

namespace {

struct Candidate {
  Config config, resolved;
  double bound = 0;  ///< no step is faster
};

std::vector<std::int64_t> divisors_of(std::int64_t number, std::int64_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= std::min(number, most); ++i) {
    if (number % i == 0) found.push_back(i);
  }
  return found;
}

// On the hardware's device, by its fastest way to communicate.
Config on_hardware(Config config, const Hardware& hardware) {
  config.run.device = hardware.device;
  config.run.communication = hardware.device == "cuda" ? "nccl" : "mpi";
  return config;
}

/// All layouts of a run on some ranks, one after the other.
class Enumeration {
 public:
  Enumeration(const Config& config, const Hardware& hardware, const SearchSettings& settings)
      : config_(on_hardware(config, hardware)),
        context_most_(config.parallel.context),
        hardware_(hardware),
        settings_(settings) {
    config_.parallel.layers_per_stage.clear();
    config_.parallel.split_stage = 0;
  }

  std::vector<Candidate> all() {
    const ModelConfig& model = config_.model;
    for (const std::int64_t tensor : divisors_of(settings_.ranks, hardware_.ranks_per_node)) {
      for (const std::int64_t pipeline : divisors_of(settings_.ranks / tensor, model.all_layers())) {
        const std::int64_t copies = settings_.ranks / tensor / pipeline;
        for (const std::int64_t context : divisors_of(copies, context_most_)) {
          for (const std::int64_t expert :
               divisors_of(copies / context, model.moe.experts > 0 ? model.moe.experts : 1)) {
            ParallelConfig& parallel = config_.parallel;
            parallel.tensor = tensor;
            parallel.pipeline = pipeline;
            parallel.context = context;
            parallel.data = copies / context;
            parallel.expert = expert;
            schedules();
          }
        }
      }
    }
    return std::move(found_);
  }
  const std::string& reason() const { return reason_; }

 private:
  void schedules() {
    ParallelConfig& parallel = config_.parallel;
    const std::int64_t stages = parallel.pipeline, layers = config_.model.all_layers();
    for (const ScheduleFacts& schedule : kSchedules) {
      parallel.schedule = schedule.name;
      parallel.virtual_stages = 1;
      if (schedule.name == "gpipe" || (stages == 1 && schedule.name != kSchedules.front().name)) continue;
      if (!schedule.chunks) {
        batches();
        continue;
      }
      for (const std::int64_t chunks : divisors_of(layers / stages, layers)) {
        if (chunks == 1 || layers % (stages * chunks) != 0) continue;
        parallel.virtual_stages = chunks;
        batches();
      }
    }
  }

  void batches() {
    const std::int64_t samples = config_.train.global_batch_size;
    if (samples % config_.parallel.data != 0) return note("the global batch is no multiple of the data ranks");
    for (std::int64_t size = 1; size <= samples / config_.parallel.data; size *= 2) {
      if (samples / config_.parallel.data % size != 0) break;
      config_.train.micro_batch_size = size;
      options();
    }
  }

  void options() {
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && config_.parallel.tensor == 1) continue;
      for (const ShareRow& share : kShares) {
        if (share.state && config_.parallel.data * config_.parallel.context == 1) continue;
        for (const RecomputeConfig& recompute : recomputations_of_searches()) {
          if (!recompute.parts.empty() && !settings_.recompute_parts) continue;
          config_.parallel.sequence_parallel = sequence_parallel;
          config_.optimizer.share = share.name;
          config_.recompute = recompute;
          for (const std::int64_t within : sets_of(share)) {
            config_.optimizer.share_within = within;
            keep();
          }
        }
      }
    }
  }

  /// All copies, and, where layers are gathered for each pass, those of a node.
  std::vector<std::int64_t> sets_of(const ShareRow& share) const {
    const ParallelConfig& parallel = config_.parallel;
    const std::int64_t on_node = hardware_.ranks_per_node / parallel.tensor, copies = parallel.context * parallel.data;
    const bool fit =
        on_node > 1 && on_node < copies && copies % on_node == 0 && on_node % (parallel.context * parallel.expert) == 0;
    return share.weights && fit ? std::vector<std::int64_t>{0, on_node} : std::vector<std::int64_t>{0};
  }

  void note(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
  }

  void keep() {
    const std::vector<Violation> violations = check_alone(config_);
    if (!violations.empty()) return note(violations.front().message);
    Candidate candidate{.config = config_, .resolved = config_};
    try {
      resolve(candidate.resolved, settings_.ranks, settings_.data);
    } catch (const Error& error) {
      return note(error.what());
    }
    found_.push_back(std::move(candidate));
  }

  Config config_;
  const std::int64_t context_most_;  // the run's: few runs have sequences worth dividing
  const Hardware& hardware_;
  const SearchSettings& settings_;
  std::vector<Candidate> found_;
  std::string reason_;
};

// A measured file is of one node, and of ranks with as many threads as measured.
void check_measured(const Config& config, const Hardware& hardware, int ranks) {
  verify(hardware.network.bandwidth > 0 || ranks <= hardware.ranks_per_node, ErrorKind::configuration,
         "the hardware file is of one node with {} and has no [network], and {} are asked for: give the file a "
         "[network], or measure as many ranks on this node (megatron_bench --hardware)",
         counted(hardware.ranks_per_node, "rank"), counted(ranks, "rank"));
  verify(hardware.threads_per_rank == 0 || hardware.device != "cpu" || config.run.threads == hardware.threads_per_rank,
         ErrorKind::configuration,
         "the hardware file was measured with {} per rank, and run.threads = {}: measure with --threads {}, or set the "
         "run's",
         counted(hardware.threads_per_rank, "thread"), config.run.threads, config.run.threads);
}

void add_run_seconds(PlannedLayout& layout, const Hardware& hardware) {
  if (layout.recorded.config.train.steps > 0) layout.run_seconds = run_seconds(layout.recorded, hardware);
}

}  // namespace

std::vector<RecomputeConfig> recomputations_of_searches() {
  return {{.mode = "none"},
          {.mode = "selective"},
          {.mode = "selective", .parts = {RecomputePart::norms, RecomputePart::feed_forward}},
          {.mode = "full"}};
}

PlannedLayout plan_layout(const Config& config, const Hardware& hardware, const SearchSettings& settings) {
  check_measured(config, hardware, settings.ranks);
  PlannedLayout layout;
  layout.config = on_hardware(config, hardware);
  Config resolved = layout.config;
  resolve(resolved, settings.ranks, settings.data);
  layout.recorded = record_layout(resolved, hardware.ranks_per_node);
  layout.time = step_time(layout.recorded, hardware);
  add_run_seconds(layout, hardware);
  return layout;
}

SearchResult search_layouts(const Config& config, const Hardware& hardware, const SearchSettings& settings) {
  check_measured(config, hardware, settings.ranks);
  Enumeration enumeration(config, hardware, settings);
  std::vector<Candidate> candidates = enumeration.all();
  verify(!candidates.empty(), ErrorKind::configuration, "no layout of {} is allowed for this run: {}",
         counted(settings.ranks, "rank"), enumeration.reason());
  SearchResult result{.best = {}, .candidates = static_cast<int>(candidates.size())};
  const double usable = hardware.usable_bytes();
  double smallest = INFINITY;
  LayoutBounds bounds(hardware);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    const double least = bounds.bytes(candidate.resolved);
    if (least <= usable) return false;
    smallest = std::min(smallest, least);
    ++result.too_large;
    return true;
  });
  for (Candidate& candidate : candidates) candidate.bound = bounds.seconds(candidate.resolved);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  const auto wanted = static_cast<std::size_t>(settings.results);
  for (Candidate& candidate : candidates) {
    if (result.best.size() == wanted && candidate.bound >= result.best.back().time.seconds) break;
    PlannedLayout layout;
    layout.config = std::move(candidate.config);
    layout.recorded = record_layout(candidate.resolved, hardware.ranks_per_node, usable);
    if (!fits(layout.recorded, usable)) {
      smallest = std::min(smallest, static_cast<double>(layout.recorded.most_bytes()));
      ++result.too_large;
      continue;
    }
    layout.time = step_time(layout.recorded, hardware);
    ++result.timed;
    const auto place = std::upper_bound(
        result.best.begin(), result.best.end(), layout,
        [](const PlannedLayout& a, const PlannedLayout& b) { return a.time.seconds < b.time.seconds; });
    result.best.insert(place, std::move(layout));
    if (result.best.size() > wanted) result.best.pop_back();
  }
  verify(!result.best.empty(), ErrorKind::configuration,
         "no layout of {} fits: a device has {} for a run, and the least that is needed is {}; use more ranks",
         counted(settings.ranks, "rank"), format_bytes(usable), format_bytes(smallest));
  for (PlannedLayout& layout : result.best) add_run_seconds(layout, hardware);
  return result;
}

}  // namespace megatron
