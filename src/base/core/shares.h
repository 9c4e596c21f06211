// The table of shares: what the copies of a model divide among them, where one copy alone would hold all of it
// (optimizer.share; stages 0 to 3 of Rajbhandari et al. 2020).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "base/core/named_rows.h"

namespace megatron {

/// Layers of which a copy has whole gradients, and whole weights, at a time, where they are divided.
inline constexpr std::size_t kWholeLayers = 2;

struct ShareRow {
  std::string_view name;
  bool state;      ///< each copy keeps its part of the optimizer's state
  bool gradients;  ///< and of layers' gradients the sums of its part
  bool weights;    ///< and of layers' values its part
  /// The numbers that a rank sends in a step of m micro-batches for a parameter of one of its layers, times (d - 1) / d
  /// with d copies: sums of gradients, and values.
  double (*traffic)(double micro_batches, double layers);

  double parts_of_state(double copies) const { return state ? copies : 1; }
  double parts_of_gradients(double copies) const { return gradients ? copies : 1; }
  double parts_of_weights(double copies) const { return weights ? copies : 1; }
};

/// How often the weights of each of `layers` layers are gathered in a step, on average. A micro-batch comes to each
/// twice, and at each turn, from a forward to its backward and from there to the next forward, the last layers are
/// still whole.
constexpr double gathers_of_weights(double micro_batches, double layers) {
  const double still_whole = std::min(layers, static_cast<double>(kWholeLayers));
  return 2 * micro_batches - still_whole * (2 * micro_batches - 1) / layers;
}

inline constexpr std::array kShares{
    ShareRow{.name = "none",
             .state = false,
             .gradients = false,
             .weights = false,
             .traffic = [](double, double) { return 2.0; }},
    ShareRow{.name = "state",
             .state = true,
             .gradients = false,
             .weights = false,
             .traffic = [](double, double) { return 2.0; }},
    ShareRow{.name = "gradients",
             .state = true,
             .gradients = true,
             .weights = false,
             .traffic = [](double m, double) { return m + 1; }},
    ShareRow{.name = "weights",
             .state = true,
             .gradients = true,
             .weights = true,
             .traffic = [](double m, double layers) { return m + gathers_of_weights(m, layers); }},
};

}  // namespace megatron
