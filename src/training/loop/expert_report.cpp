#include "training/loop/expert_report.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>

namespace megatron {

ExpertUse with_agreed_gap(ExpertUse use, const ProcessGrid& grid) {
  std::array<double, 1> most = {-use.least_gap};
  grid.agree(most);
  use.least_gap = -most[0];
  return use;
}

ExpertMetrics expert_metrics(const ExpertUse& use, const std::vector<std::string>& layers) {
  ExpertMetrics metrics{.dropped = use.dropped(), .router_gap = use.least_gap, .load = {}};
  for (std::int64_t layer = 0; layer < use.layers(); ++layer) {
    metrics.load.emplace_back(layers[static_cast<std::size_t>(layer)], use.shares(layer));
  }
  return metrics;
}

std::string expert_table(const ExpertUse& use, const std::vector<std::string>& layers) {
  struct Expert {
    std::int64_t layer = 0, expert = 0;
    double share = 0;
  };
  Expert busiest{0, 0, use.shares(0)[0]}, idlest = busiest;
  for (std::int64_t layer = 0; layer < use.layers(); ++layer) {
    Expert found{layer, 0};
    for (const double share : use.shares(layer)) {
      found.share = share;
      if (found.share > busiest.share) busiest = found;
      if (found.share < idlest.share) idlest = found;
      ++found.expert;
    }
  }
  std::string text = fmt::format("experts in {} step{}: each has {:.1f}% of its layer's choices if all are equal\n",
                                 use.steps, use.steps == 1 ? "" : "s", 100.0 / static_cast<double>(use.experts));
  auto out = std::back_inserter(text);
  const auto row = [&](const char* name, const Expert& of) {
    fmt::format_to(out, "{:<14} {:>9.1f}%  expert {} of {}\n", name, 100 * of.share, of.expert,
                   layers[static_cast<std::size_t>(of.layer)]);
  };
  row("busiest", busiest);
  row("idlest", idlest);
  fmt::format_to(out, "{:<14} {:>9.1f}%  of the choices found no place\n", "dropped", 100 * use.dropped());
  if (std::isfinite(use.least_gap)) {
    fmt::format_to(out, "{:<14} {:>10.1e}  between a chosen expert and the next one, at least", "router gap",
                   use.least_gap);
  } else {
    fmt::format_to(out, "{:<14} {:>10}  every token goes to all experts", "router gap", "none");
  }
  return text;
}

}  // namespace megatron
