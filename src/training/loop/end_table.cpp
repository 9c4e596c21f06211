#include "training/loop/end_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/system/memory_usage.h"
#include "base/text/byte_text.h"

namespace megatron {

namespace {

template <class Get>
Spread spread(const std::vector<RankReport>& ranks, Get get) {
  Spread result{get(ranks.front()), 0, get(ranks.front())};
  for (const RankReport& rank : ranks) {
    const double value = get(rank);
    result.least = std::min(result.least, value);
    result.most = std::max(result.most, value);
    result.mean += value / static_cast<double>(ranks.size());
  }
  return result;
}

}  // namespace

std::string end_table(const std::vector<RankReport>& ranks) {
  std::string text = fmt::format("{:<14} {:>10} {:>10} {:>10} {:>8}\n", "seconds", "min", "average", "max", "share");
  auto out = std::back_inserter(text);
  double total = 0;
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    total += spread(ranks, [i](const RankReport& rank) { return rank.seconds[i]; }).mean;
  }
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    const Spread row = spread(ranks, [i](const RankReport& rank) { return rank.seconds[i]; });
    fmt::format_to(out, "{:<14} {:>10.2f} {:>10.2f} {:>10.2f} {:>7.1f}%\n", name_of(static_cast<Section>(i)), row.least,
                   row.mean, row.most, total > 0 ? 100 * row.mean / total : 0.0);
  }
  fmt::format_to(out, "{:<14} {:>10} {:>10.2f}\n", "total", "", total);
  const auto row = [&](const char* name, auto get) {
    const Spread bytes = spread(ranks, get);
    fmt::format_to(out, "{:<14} {:>10} {:>10} {:>10}\n", name, format_bytes(bytes.least), format_bytes(bytes.mean),
                   format_bytes(bytes.most));
  };
  text += fmt::format("memory and traffic per rank (resident: predicted, and {} of program and libraries)\n",
                      program_bytes());
  row("predicted", [](const RankReport& rank) { return rank.planned_bytes; });
  row("used", [](const RankReport& rank) { return rank.used_bytes; });
  const auto beyond = [&](double sign) {
    return spread(ranks, [=](const RankReport& rank) { return sign * (rank.used_bytes - rank.planned_bytes); }).most;
  };
  const double more = beyond(1), less = beyond(-1);
  const std::string verdict = more > 0   ? fmt::format("not as predicted: up to {:.0f} bytes more", more)
                              : less > 0 ? "not all of it was needed"  // by an evaluation alone, by the first of a ramp
                                         : "as predicted, to the byte";
  text.insert(text.size() - 1, "  " + verdict);
  row("peak resident", [](const RankReport& rank) { return rank.peak_resident_bytes; });
  row("sent", [](const RankReport& rank) { return rank.sent_bytes; });
  text.pop_back();
  return text;
}

ProgramEnd end_facts(const std::vector<RankReport>& ranks) {
  ProgramEnd end;
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    end.seconds.emplace_back(name_of(static_cast<Section>(i)),
                             spread(ranks, [i](const RankReport& rank) { return rank.seconds[i]; }));
  }
  end.bytes = {{"predicted", spread(ranks, [](const RankReport& rank) { return rank.planned_bytes; })},
               {"used", spread(ranks, [](const RankReport& rank) { return rank.used_bytes; })},
               {"peak resident", spread(ranks, [](const RankReport& rank) { return rank.peak_resident_bytes; })},
               {"sent", spread(ranks, [](const RankReport& rank) { return rank.sent_bytes; })}};
  return end;
}

}  // namespace megatron
