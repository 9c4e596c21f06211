// The table of shares: what the copies of a model divide among them, where one copy alone would hold all of it
// (optimizer.share; stages 0, 1 and 2 of Rajbhandari et al. 2020).
#pragma once

#include <array>
#include <string_view>

#include "base/core/named_rows.h"

namespace megatron {

struct ShareRow {
  std::string_view name;
  bool state;      ///< each copy keeps its part of the optimizer's state
  bool gradients;  ///< and of layers' gradients the sums of its part
  /// For a parameter of a layer, times (d - 1) / d with d copies: the numbers that a rank sends in a step of
  /// `micro_batches`: gradients, and the new value.
  double (*traffic)(double micro_batches);

  double parts_of_state(double copies) const { return state ? copies : 1; }
  double parts_of_gradients(double copies) const { return gradients ? copies : 1; }
};

inline constexpr std::array kShares{
    ShareRow{.name = "none", .state = false, .gradients = false, .traffic = [](double) { return 2.0; }},
    ShareRow{.name = "state", .state = true, .gradients = false, .traffic = [](double) { return 2.0; }},
    ShareRow{.name = "gradients", .state = true, .gradients = true, .traffic = [](double m) { return m + 1; }},
};

}  // namespace megatron
