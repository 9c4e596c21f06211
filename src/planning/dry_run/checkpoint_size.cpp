#include "planning/dry_run/checkpoint_size.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/rank_file.h"
#include "config/schema/print.h"
#include "models/families/family.h"
#include "training/step/grid.h"
#include "training/step/saved_layout.h"

namespace megatron {

namespace {

// Ranks whose slices are listed. Each takes about a millisecond, and longer in a grid of more than 100,000 ranks.
constexpr int kMostRanks = 64, kLeastRanks = 4, kMostMembers = 1 << 22;
constexpr int kSyncsOfSave = 6;  // rank file, manifest, two folders, latest and its folder
constexpr const char kAnyHash[] = "0123456789abcdef0123456789abcdef";

// All ranks, or some from all over the grid: an odd distance meets all tensor ranks.
std::vector<int> listed_ranks(int all) {
  std::vector<int> ranks;
  const int most = std::clamp(kMostMembers / all, kLeastRanks, kMostRanks);
  const int between = all <= most ? 1 : (all / most) | 1;
  for (int rank = 0; rank < all; rank += between) ranks.push_back(rank);
  return ranks;
}

// A rank's slices in its file: none of tensors that are too small for all of their copies.
std::vector<TensorSlice> written_slices(const Config& config, int rank) {
  std::vector<TensorSlice> slices = saved_layout(config, rank);
  std::erase_if(slices, [](const TensorSlice& slice) { return slice.count == 0; });
  return slices;
}

// As a run's own, with what the trainer keeps of the configuration. Lines of the listed ranks stand for all ranks.
std::int64_t manifest_bytes(const Config& config, const std::map<std::string, TensorSummary>& tensors,
                            std::int64_t bytes) {
  Manifest manifest;
  manifest.state.step = config.train.steps;
  manifest.state.facts = family_of(config.model).signature(config);
  manifest.state.extra = {{"config", print_config(config)}};
  manifest.ranks = grid_shape(config).ranks();
  for (const auto& [name, tensor] : tensors) manifest.tensors.push_back(tensor);
  const auto without = static_cast<std::int64_t>(manifest_text(manifest).size());
  for (const int rank : listed_ranks(manifest.ranks)) {
    manifest.files.push_back({rank, bytes / manifest.ranks, kAnyHash});
  }
  const std::int64_t lines = static_cast<std::int64_t>(manifest_text(manifest).size()) - without;
  return without + lines * manifest.ranks / static_cast<std::int64_t>(manifest.files.size());
}

}  // namespace

std::int64_t planned_checkpoint_bytes(const Config& config, const std::vector<MemoryPlan>& stages) {
  const GridShape shape = grid_shape(config);
  const std::vector<int> ranks = listed_ranks(shape.ranks());
  std::map<std::string, TensorSummary> tensors;
  std::int64_t bytes = 0, listed = 0;
  for (const int rank : ranks) {
    const std::vector<TensorSlice> slices = written_slices(config, rank);
    for (const TensorSlice& slice : slices) {
      TensorSummary tensor = summary_of(slice);
      tensor.elements = slice.global_shape.elements();
      tensors.emplace(slice.name, std::move(tensor));
      listed += slice.numbers();
    }
    bytes += rank_file_bytes(slices);
  }
  if (static_cast<int>(ranks.size()) < shape.ranks()) {
    constexpr std::int64_t number = sizeof(float);
    std::int64_t numbers = 0;
    for (const MemoryPlan& plan : stages) numbers += plan.stage_numbers;
    const std::int64_t tables = bytes - listed * number;
    bytes = numbers * number + tables * shape.ranks() / static_cast<std::int64_t>(ranks.size());
  }
  return bytes + manifest_bytes(config, tensors, bytes);
}

std::int64_t free_bytes_for_checkpoint(const Config& config, const std::vector<MemoryPlan>& stages) {
  std::int64_t numbers = 0;
  for (const MemoryPlan& plan : stages) numbers += plan.stage_numbers;
  return room_for_checkpoint(numbers, grid_shape(config).ranks());
}

double save_seconds(std::int64_t bytes, const DiskSpeed& disk) {
  return kSyncsOfSave * disk.seconds_per_sync + static_cast<double>(bytes) / disk.bytes_per_second;
}

std::optional<std::int64_t> checkpoints_at_a_time(const Config& config, std::optional<double> run_seconds) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.never) return 0;
  const std::int64_t best = checkpoint.keep_best ? 1 : 0;
  const std::int64_t most =
      checkpoint.keep_last > 0 ? checkpoint.keep_last + 1 : std::numeric_limits<std::int64_t>::max() - best;
  std::int64_t all = 1;
  if (checkpoint.every_steps > 0) all += std::max<std::int64_t>(0, config.train.steps - 1) / checkpoint.every_steps;
  const double minutes = checkpoint.minutes_between();
  constexpr double kMany = 1e15;
  if (minutes > 0 && run_seconds) all += static_cast<std::int64_t>(std::min(*run_seconds / (60 * minutes), kMany));
  if (checkpoint.keep_best || (minutes > 0 && !run_seconds)) all = most;
  if (all >= most && checkpoint.keep_last == 0) return std::nullopt;
  return std::min(all, most) + best;
}

}  // namespace megatron
