#include "planning/layout_search/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text/byte_text.h"
#include "base/text/text.h"

namespace megatron {

namespace {

/// The [software.NAME] tables of the shipped files, fitted to published runs of Megatron-LM.
constexpr std::string_view kPublishedSoftware = "megatron_2";

struct Part {
  std::string name;
  double seconds = 0;
};

// Everything that a step of the busiest stage is made of.
std::vector<Part> parts_of(const StepTime& time) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < kCosts; ++i) {
    parts.push_back({name_of(static_cast<Cost>(i)), time.costs.by_cost[i]});
  }
  parts.push_back({"waiting", time.idle_seconds});
  parts.push_back({"gradient sums", time.sums_seconds});
  parts.push_back({"update", time.update_seconds});
  return parts;
}

const Part& largest(const std::vector<Part>& parts, std::size_t from) {
  return *std::max_element(parts.begin() + static_cast<std::ptrdiff_t>(from), parts.end(),
                           [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
}

std::string in_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", 1e6 * seconds);
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.4g} s", seconds);
}

std::string share(double seconds, const StepTime& time) {
  return fmt::format("{:.1f} %", 100 * seconds / time.seconds);
}

// "t 8  p 4 x 3  d 32": the extents that are not 1.
std::string extents(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  std::string text = fmt::format("t{} p{}", parallel.tensor, parallel.pipeline);
  if (parallel.virtual_stages > 1) text += fmt::format("x{}", parallel.virtual_stages);
  text += fmt::format(" d{}", parallel.data);
  if (parallel.context > 1) text += fmt::format(" c{}", parallel.context);
  if (parallel.expert > 1) text += fmt::format(" e{}", parallel.expert);
  return text;
}

std::string options(const Config& config) {
  std::vector<std::string> words;
  if (config.parallel.pipeline > 1) words.push_back(config.parallel.schedule);
  if (config.parallel.sequence_parallel) words.emplace_back("sequence");
  if (config.optimizer.shares().state) {
    const std::int64_t within = config.optimizer.share_within;
    words.push_back("share " + config.optimizer.share + (within > 0 ? fmt::format(" within {}", within) : ""));
  }
  if (config.recompute.kind() == RecomputeMode::full) words.emplace_back("recompute");
  if (config.recompute.kind() == RecomputeMode::selective) {
    words.push_back(fmt::format("recompute {}", fmt::join(config.recompute.parts_made().names(), " + ")));
  }
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

double days_of(const PlannedLayout& layout) {
  return layout.run_seconds / 86400;
}

constexpr const char* kRow = "  {:>2}  {:<18} {:>3} {:>9} {:>10} {:>11} {:>5} {:>6} {:>8}  {:<22} {}\n";

std::string row(std::size_t number, const PlannedLayout& layout) {
  const StepTime& time = layout.time;
  const double days = days_of(layout);
  return fmt::format(fmt::runtime(kRow), number, extents(layout.recorded.config),
                     layout.recorded.config.train.micro_batch_size,
                     format_bytes(static_cast<double>(layout.recorded.most_bytes())), in_seconds(time.seconds),
                     fmt::format("{:.4g}", time.tokens_per_second), fmt::format("{:.1f}", 100 * time.model_flops_share),
                     fmt::format("{:.1f}", 100 * time.bubble), days == 0 ? "-" : fmt::format("{:.3g}", days),
                     what_binds(time), options(layout.recorded.config));
}

// The part of a step in which the second loses most, and what it would win elsewhere.
std::string why_second_lost(const PlannedLayout& first, const PlannedLayout& second) {
  const std::vector<Part> ours = parts_of(first.time), theirs = parts_of(second.time);
  std::size_t worst = 0, best = 0;
  const auto more = [&](std::size_t i) { return theirs[i].seconds - ours[i].seconds; };
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (more(i) > more(worst)) worst = i;
    if (more(i) < more(best)) best = i;
  }
  const double behind = second.time.seconds - first.time.seconds,
               counts = std::max(0.05 * behind, 1e-4 * first.time.seconds);
  std::string text =
      fmt::format("the second takes {} more a step ({:.1f} %)", in_seconds(behind), 100 * behind / first.time.seconds);
  if (more(worst) > counts) {
    text += fmt::format(": {} {} against {}", theirs[worst].name, in_seconds(theirs[worst].seconds),
                        in_seconds(ours[worst].seconds));
  }
  if (more(best) < -counts) {
    text += fmt::format("; it wins some back in {}: {} against {}", theirs[best].name, in_seconds(theirs[best].seconds),
                        in_seconds(ours[best].seconds));
  }
  return text + "\n";
}

std::string describe_hardware(const Hardware& hardware) {
  const bool published = hardware.software_name.starts_with(kPublishedSoftware);
  const std::string source = published
                                 ? "as published for Megatron-LM (" + hardware.software_name +
                                       "), not measured with this program; megatron_bench --hardware FILE measures"
                                 : hardware.software_name;
  return fmt::format("speeds    efficiencies {}\nhardware  {}, {} per node, {} for a run\n", source, hardware.name,
                     counted(hardware.ranks_per_node, "rank"), format_bytes(hardware.usable_bytes()));
}

}  // namespace

std::string what_binds(const StepTime& time) {
  const Part most = largest(parts_of(time), 1);
  return fmt::format("{} {:.0f} %", most.name, 100 * most.seconds / time.seconds);
}

std::string describe_search(const SearchResult& result, const Hardware& hardware, int ranks) {
  std::string text = describe_hardware(hardware);
  fmt::format_to(
      std::back_inserter(text),
      "search    {} of {} layouts of {} were played; {} need more memory than there is, the others cannot be "
      "among the best\n",
      result.timed, result.candidates, counted(ranks, "rank"), result.too_large);
  fmt::format_to(std::back_inserter(text), fmt::runtime(kRow), "", "layout", "mb", "memory", "step", "tokens/s",
                 "MFU %", "bubble", "days", "binds", "with");
  for (std::size_t i = 0; i < result.best.size(); ++i) text += row(i + 1, result.best[i]);
  text +=
      "  t tensor, p pipeline x chunks, d data, c context, e expert ranks; mb samples of a micro-batch\n"
      "  bubble % of the schedule, the average of all stages; days for the file's tokens\n"
      "  binds: where the stage with the most to do spends most, besides products\n";
  if (result.best.size() > 1) text += why_second_lost(result.best[0], result.best[1]);
  return text;
}

std::string explain_layout(const PlannedLayout& layout, const Hardware& hardware) {
  const StepTime& time = layout.time;
  const RecordedLayout& recorded = layout.recorded;
  std::string text = describe_hardware(hardware);
  auto out = std::back_inserter(text);
  fmt::format_to(out, "layout    {}, {}, micro-batches of {}, {} on each data rank; {}\n", extents(recorded.config),
                 counted(static_cast<std::int64_t>(recorded.schedules.size()), "stage"),
                 counted(recorded.config.train.micro_batch_size, "sample"), recorded.micro_batches,
                 options(recorded.config));
  fmt::format_to(out, "step      {}: {:.4g} tokens/s, MFU {:.1f} %, bubble {:.1f} % of the schedule\n",
                 in_seconds(time.seconds), time.tokens_per_second, 100 * time.model_flops_share, 100 * time.bubble);
  if (const double days = days_of(layout); days > 0)
    fmt::format_to(out, "length    {:.3g} days for the file's tokens\n", days);
  const auto bytes = static_cast<double>(recorded.most_bytes());
  fmt::format_to(out, "memory    {} on the fullest stage; {}\n", format_bytes(bytes),
                 bytes <= hardware.usable_bytes() ? "it fits" : "it does NOT fit");
  fmt::format_to(out, "where the step goes, on stage {}, which has the most to do\n", time.busiest_stage);
  for (const Part& part : parts_of(time)) {
    if (part.seconds > 0) {
      fmt::format_to(out, "  {:<14} {:>10} {:>8}\n", part.name, in_seconds(part.seconds), share(part.seconds, time));
    }
  }
  fmt::format_to(out, "binds     {}\n", what_binds(time));
  fmt::format_to(out, "stages    compute {}\n",
                 in_seconds(*std::min_element(time.stage_seconds.begin(), time.stage_seconds.end())) + " to " +
                     in_seconds(*std::max_element(time.stage_seconds.begin(), time.stage_seconds.end())));
  return text;
}

std::string layouts_as_json(const std::vector<PlannedLayout>& layouts, const Hardware& hardware, int ranks) {
  nlohmann::ordered_json json = {{"hardware", hardware.name}, {"software", hardware.software_name}, {"ranks", ranks}};
  json["layouts"] = nlohmann::ordered_json::array();
  for (const PlannedLayout& layout : layouts) {
    const Config& config = layout.recorded.config;
    const StepTime& time = layout.time;
    nlohmann::ordered_json one = {{"tensor", config.parallel.tensor},
                                  {"pipeline", config.parallel.pipeline},
                                  {"virtual_stages", config.parallel.virtual_stages},
                                  {"data", config.parallel.data},
                                  {"context", config.parallel.context},
                                  {"expert", config.parallel.expert},
                                  {"schedule", config.parallel.schedule},
                                  {"micro_batch_size", config.train.micro_batch_size},
                                  {"sequence_parallel", config.parallel.sequence_parallel},
                                  {"share", config.optimizer.share},
                                  {"share_within", config.optimizer.share_within},
                                  {"recompute", config.recompute.mode},
                                  {"recompute_parts", config.recompute.parts_made().names()},
                                  {"memory_bytes", layout.recorded.most_bytes()},
                                  {"fits", fits(layout.recorded, hardware.usable_bytes())},
                                  {"step_seconds", time.seconds},
                                  {"tokens_per_second", time.tokens_per_second},
                                  {"model_flops_share", time.model_flops_share},
                                  {"bubble", time.bubble},
                                  {"days", days_of(layout)},
                                  {"binds", what_binds(time)}};
    for (const Part& part : parts_of(time)) one["seconds"][part.name] = part.seconds;
    json["layouts"].push_back(one);
  }
  return json.dump(2) + "\n";
}

}  // namespace megatron
