#include "planning/layout_search/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "config/rules/rules.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"

namespace megatron {

namespace {

/// The keys whose values are tried. A mode without parts has none.
constexpr std::string_view kFitKeys[][2] = {{"train", "micro_batch_size"}, {"recompute", "mode"},
                                            {"recompute", "parts"},        {"model", "head_chunks"},
                                            {"optimizer", "share"},        {"optimizer", "share_within"},
                                            {"optimizer", "offload"},      {"optimizer", "moments_dtype"}};
constexpr std::size_t kMostOthers = 4;
constexpr std::int64_t kHeadChunks = 8;  ///< leave an eighth of the logits: more would save little

const Key& key_of(const std::string_view (&name)[2]) {
  return *find_key(name[0], name[1]);
}

/// A configuration's bytes and seconds, with those in which a node's disk reads and writes its ranks' files.
FitChoice played(const Config& config, const Hardware& hardware, const SearchSettings& settings,
                 double disk_bytes_per_second) {
  const PlannedLayout layout = plan_layout(config, hardware, settings);
  FitChoice choice{.config = config, .bytes = layout.recorded.most_bytes(), .seconds = layout.time.seconds};
  if (disk_bytes_per_second <= 0) return choice;
  std::size_t file = 0;
  for (const RecordedLayout::PlayedStage& stage : layout.recorded.played) file = std::max(file, stage.memory.file);
  const int ranks = std::min(hardware.ranks_per_node, settings.ranks);
  choice.seconds += 2.0 * static_cast<double>(file) * ranks / disk_bytes_per_second;
  return choice;
}

/// The values of each thing that is tried, the file's own among them.
std::vector<std::int64_t> micro_batches(const Config& config) {
  std::vector<std::int64_t> sizes = {config.train.micro_batch_size};
  for (std::int64_t size = 1; size <= config.train.global_batch_size; size *= 2) {
    if (size != sizes.front()) sizes.push_back(size);
  }
  return sizes;
}

std::vector<RecomputeConfig> recomputations(const Config& config) {
  std::vector<RecomputeConfig> ways = {config.recompute};
  for (const RecomputeConfig& way : recomputations_of_searches()) {
    if (way != config.recompute) ways.push_back(way);
  }
  return ways;
}

std::vector<std::int64_t> head_chunks(const Config& config) {
  std::vector<std::int64_t> counts = {config.model.head_chunks};
  for (const std::int64_t count : {std::int64_t{1}, kHeadChunks}) {
    if (count != counts.front()) counts.push_back(count);
  }
  return counts;
}

/// Shares, and the ranks that each is within: the file's number of them, and all.
std::vector<std::pair<std::string, std::int64_t>> shares(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  std::vector<std::pair<std::string, std::int64_t>> all = {{optimizer.share, optimizer.share_within}};
  if (config.parallel.data * config.parallel.context == 1) return all;  // there are no copies to divide among
  for (const ShareRow& row : kShares) {
    const std::string name(row.name);
    if (row.state && optimizer.share_within > 0 && name != optimizer.share)
      all.emplace_back(name, optimizer.share_within);
    if (name != optimizer.share || optimizer.share_within > 0) all.emplace_back(name, 0);
  }
  return all;
}

/// Where states are and of which type, from the file's own on: what is tried only if nothing before it fits.
std::vector<OptimizerConfig> resorts(const Config& config, bool has_disk) {
  std::vector<OptimizerConfig> all = {config.optimizer};
  const auto add_in_file = [&] {
    if (!has_disk || all.back().offload != "none") return;
    all.push_back(all.back());
    all.back().offload = "file";
  };
  add_in_file();
  if (config.optimizer.moments() != DType::f32) return all;
  all.push_back(config.optimizer);
  all.back().moments_dtype = "bf16";
  add_in_file();
  return all;
}

/// Each combination with these states that the rules allow on these ranks.
std::vector<Config> combinations(const Config& config, const OptimizerConfig& states) {
  std::vector<Config> all;
  for (const auto& [share, within] : shares(config)) {
    for (const RecomputeConfig& recompute : recomputations(config)) {
      for (const std::int64_t chunks : head_chunks(config)) {
        for (const std::int64_t size : micro_batches(config)) {
          Config one = config;
          one.optimizer = states;
          one.optimizer.share = share;
          one.optimizer.share_within = within;
          one.recompute = recompute;
          one.model.head_chunks = chunks;
          one.train.micro_batch_size = size;
          if (check_alone(one).empty()) all.push_back(std::move(one));
        }
      }
    }
  }
  return all;
}

/// The file with one of the changes alone. Recomputation is one change, of two keys.
std::vector<Config> single_changes(const Config& file, const Config& chosen) {
  std::vector<Config> changes;
  for (const auto& name : kFitKeys) {
    if (name[1] == "parts") continue;
    Config one = file;
    copy_value(key_of(name), chosen, one);
    if (name[1] == "mode") one.recompute = chosen.recompute;
    if (!(one == file) && check_alone(one).empty()) changes.push_back(std::move(one));
  }
  return changes;
}

// "train.micro_batch_size = 2, recompute.mode = "full"": what differs from the file.
std::string changes_in_words(const Config& file, const Config& config) {
  std::vector<std::string> words;
  Config from = file, to = config;
  for (const auto& name : kFitKeys) {
    const Key& key = key_of(name);
    if (!differs(key, from, to)) continue;
    const std::string value = print_value(key, config);
    words.push_back(value.empty() ? "no " + key.full_name() : fmt::format("{} = {}", key.full_name(), value));
  }
  return words.empty() ? "the file as it is" : fmt::format("{}", fmt::join(words, ", "));
}

std::string options_for(const Config& file, const Config& config) {
  std::string options;
  Config from = file, to = config;
  for (const auto& name : kFitKeys) {
    const Key& key = key_of(name);
    const std::string value = print_value(key, config);
    if (differs(key, from, to) && !value.empty()) options += fmt::format(" --set '{}={}'", key.full_name(), value);
  }
  return options;
}

std::string bytes_text(std::size_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string difference(const FitChoice& choice, const FitChoice& file) {
  const double saved = static_cast<double>(file.bytes) - static_cast<double>(choice.bytes);
  const double more = choice.seconds - file.seconds;
  return fmt::format("{} {}, {} {:.3g} s a step", saved < 0 ? "takes" : "saves", format_bytes(std::abs(saved)),
                     more < 0 ? "wins" : "costs", std::abs(more));
}

}  // namespace

double parse_bytes(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  std::string unit(rest, end);
  unit.erase(0, unit.find_first_not_of(' '));
  double factor = 1;
  for (const char* const name : {"KiB", "MiB", "GiB", "TiB"}) {
    factor *= 1024;
    if (unit == name) number *= factor, unit.clear();
  }
  verify(error == std::errc() && unit.empty() && number >= 1 && number < 1e18, ErrorKind::configuration,
         "\"{}\" is no number of bytes: give one such as 16GiB, with KiB, MiB, GiB or TiB", text);
  return number;
}

Hardware hardware_here(const Config& config, const MachineSpeed& speed, int ranks) {
  Hardware hardware;
  hardware.name = "this machine's ranks of " + counted(config.run.threads, "thread");
  hardware.device = "cpu";
  hardware.flops_32bit = speed.flops_per_second;
  hardware.flops_16bit = speed.product_flops_per_second();
  hardware.memory_bytes = 1e18;  // the limit is another
  hardware.memory_bandwidth = speed.bytes_per_second;
  hardware.ranks_per_node = ranks;
  hardware.node = {.bandwidth = speed.bytes_per_second / 4, .latency = 2e-5};  // copied out and in, by both
  hardware.software_name = "measured for this plan: products and memory alone";
  return hardware;
}

Fit fit_memory(const Config& config, const Hardware& hardware, const SearchSettings& settings, double limit,
               double disk_bytes_per_second) {
  const auto play = [&](const Config& each) { return played(each, hardware, settings, disk_bytes_per_second); };
  Fit fit{.limit = limit, .file = play(config), .fitting = {}, .one_by_one = {}};
  fit.least = fit.file.bytes;
  for (const OptimizerConfig& states : resorts(config, disk_bytes_per_second > 0)) {
    if (!fit.fitting.empty()) break;
    for (const Config& each : combinations(config, states)) {
      try {
        const FitChoice choice = play(each);
        ++fit.tried;
        fit.least = std::min(fit.least, choice.bytes);
        if (static_cast<double>(choice.bytes) <= limit) fit.fitting.push_back(choice);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::configuration) throw;  // refused on these ranks
      }
    }
  }
  verify(!fit.fitting.empty(), ErrorKind::configuration,
         "nothing fits into {} per rank: of {} combinations the smallest needs {}; give more tensor, pipeline or data "
         "ranks, or more memory",
         format_bytes(limit), fit.tried, bytes_text(fit.least));
  std::stable_sort(fit.fitting.begin(), fit.fitting.end(),
                   [](const FitChoice& a, const FitChoice& b) { return a.seconds < b.seconds; });
  for (const Config& each : single_changes(config, fit.fitting.front().config)) {
    try {
      fit.one_by_one.push_back(play(each));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::configuration) throw;
    }
  }
  return fit;
}

std::string describe_fit(const Fit& fit) {
  const FitChoice& best = fit.fitting.front();
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "fit       {} per rank, the plan's own buffers: {} of {} combinations fit\n",
                 format_bytes(fit.limit), fit.fitting.size(), fit.tried);
  fmt::format_to(out, "file      {}, {:.4g} s a step; {}\n", bytes_text(fit.file.bytes), fit.file.seconds,
                 static_cast<double>(fit.file.bytes) <= fit.limit ? "it fits" : "it does NOT fit");
  fmt::format_to(out, "cheapest  {}, {:.4g} s a step ({:+.1f} %): {}\n", bytes_text(best.bytes), best.seconds,
                 100 * (best.seconds / fit.file.seconds - 1), changes_in_words(fit.file.config, best.config));
  for (const FitChoice& choice : fit.one_by_one) {
    fmt::format_to(out, "  {} alone {}\n", changes_in_words(fit.file.config, choice.config),
                   difference(choice, fit.file));
  }
  for (std::size_t i = 1; i < std::min(fit.fitting.size(), kMostOthers + 1); ++i) {
    const FitChoice& next = fit.fitting[i];
    fmt::format_to(out, "next      {}, {:.4g} s a step: {}\n", bytes_text(next.bytes), next.seconds,
                   changes_in_words(fit.file.config, next.config));
  }
  if (const std::string options = options_for(fit.file.config, best.config); !options.empty()) {
    fmt::format_to(out, "options  {}\n", options);
  }
  return wrapped(text);
}

}  // namespace megatron
