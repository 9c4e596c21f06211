// The table of shares: what the copies of a model divide among them, where one copy alone would hold all of it
// (optimizer.share; stages 0 to 3 of Rajbhandari et al. 2020).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "base/core/named_rows.h"

namespace megatron {

/// Layers of which a copy has whole gradients, and whole weights, at a time, where they are divided.
inline constexpr std::size_t kWholeLayers = 2;

/// Passes of a rank in a step.
struct ShareTraffic {
  double micro_batches = 1, layers = 1;
  double forwards_in_a_row = 1;  ///< then as many backwards: 1, but of a schedule that has all forwards first

  /// How often the weights of a layer are gathered, on average over equal ones, where they are divided. A micro-batch
  /// comes to each twice, and where forwards follow backwards or the reverse the last layers are still whole.
  constexpr double gathers() const {
    constexpr double still_whole = kWholeLayers;
    if (layers <= still_whole) return 1;
    const double turns = 2 * micro_batches / forwards_in_a_row - 1;
    return 2 * micro_batches - still_whole * turns / layers;
  }
};

struct ShareRow {
  std::string_view name;
  bool state;      ///< each copy keeps its part of the optimizer's state
  bool gradients;  ///< and of layers' gradients the sums of its part
  bool weights;    ///< and of layers' values its part
  /// The numbers that a rank sends in a step for a parameter of one of its layers, times (d - 1) / d with d copies:
  /// sums of gradients, and values.
  double (*traffic)(const ShareTraffic& step);

  double parts_of_state(double copies) const { return state ? copies : 1; }
  double parts_of_gradients(double copies) const { return gradients ? copies : 1; }
  double parts_of_weights(double copies) const { return weights ? copies : 1; }
};

inline constexpr std::array kShares{
    ShareRow{.name = "none",
             .state = false,
             .gradients = false,
             .weights = false,
             .traffic = [](const ShareTraffic&) { return 2.0; }},
    ShareRow{.name = "state",
             .state = true,
             .gradients = false,
             .weights = false,
             .traffic = [](const ShareTraffic&) { return 2.0; }},
    ShareRow{.name = "gradients",
             .state = true,
             .gradients = true,
             .weights = false,
             .traffic = [](const ShareTraffic& step) { return step.micro_batches + 1; }},
    ShareRow{.name = "weights",
             .state = true,
             .gradients = true,
             .weights = true,
             .traffic = [](const ShareTraffic& step) { return step.micro_batches + step.gathers(); }},
};

}  // namespace megatron
